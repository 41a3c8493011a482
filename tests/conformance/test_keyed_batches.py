"""Batches of messages with ordering keys, published and completed together."""

from collections import defaultdict
from collections.abc import Sequence

import anyio
import pytest

from penstock.errors import NameTaken
from penstock.model.message import Dedup, Draft, Leased, Nack, SettleReject, State
from penstock.model.store_types import AnswerKind, Completion
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def publish(stage: Stage, drafts: Sequence[Draft]) -> list[int]:
    published = await stage.broker.publish_many(drafts)
    assert [each.code for each in published] == [None] * len(drafts)
    return [each.id for each in published]


async def complete(stage: Stage, held: Sequence[Leased]) -> list[AnswerKind]:
    items = [Completion(leased.id, leased.fence) for leased in held]
    return [answer.kind for answer in await stage.broker.complete_many(items)]


async def rounds(stage: Stage) -> list[list[int]]:
    """What is claimed and completed together, again and again, until nothing is left."""
    found: list[list[int]] = []
    while held := await stage.claim(limit=100):
        assert await complete(stage, held) == [AnswerKind.DONE] * len(held)
        found.append([leased.id for leased in held])
    return found


def make_keyed(*keys: str) -> list[Draft]:
    return [Draft(ordering_key=key) for key in keys]


async def test_messages_of_distinct_keys_are_out_together(stage: Stage) -> None:
    ids = await publish(stage, make_keyed(*map(str, range(50))))
    assert await rounds(stage) == [ids]
    assert await stage.places() == {"ended": 50}


async def test_a_batch_frees_its_keys(stage: Stage) -> None:
    await publish(stage, make_keyed("a", "b"))
    await rounds(stage)
    ids = await publish(stage, make_keyed("b", "a"))
    assert [await stage.state(id) for id in ids] == [State.READY, State.READY]


async def test_a_key_that_is_several_times_in_a_batch_goes_on_in_order(stage: Stage) -> None:
    a, b, a2, c, a3, b2 = await publish(stage, make_keyed("a", "b", "a", "c", "a", "b"))
    assert await rounds(stage) == [[a, b, c], [a2, b2], [a3]]


async def test_a_batch_waits_behind_what_is_in_line_already(stage: Stage) -> None:
    first, second = await publish(stage, make_keyed("a", "a"))
    third, free = await publish(stage, make_keyed("a", "b"))
    assert await rounds(stage) == [[first, free], [second], [third]]


async def test_a_batch_of_all_kinds_is_placed_each_by_its_kind(stage: Stage) -> None:
    head = await stage.publish(ordering_key="taken")
    drafts = [
        Draft(),
        Draft(ordering_key="k", delay=60),
        Draft(ordering_key="k", lease=7),
        Draft(ordering_key="k", ttl=60),
        Draft(ordering_key="taken"),
        Draft(ordering_key="named", name="n"),
        Draft(ordering_key="named"),
        Draft(delay=60),
        Draft(lease=7, callback="https://example.com"),
        Draft(ordering_key="unique", dedup=Dedup("u", window=None)),
    ]
    ids = await publish(stage, drafts)
    waiting, ready = State.SCHEDULED, State.READY
    expected = [ready, waiting, ready, waiting, waiting, ready, waiting, waiting, ready, ready]
    assert ids == sorted(ids)
    assert [await stage.state(id) for id in ids] == expected
    out = {leased.id: leased for leased in await stage.claim(limit=100)}
    assert sorted(out) == [head, ids[0], ids[2], ids[5], ids[8], ids[9]]
    assert out[ids[2]].meta.lease == 7
    assert await complete(stage, list(out.values())) == [AnswerKind.DONE] * 6
    assert await rounds(stage) == [[ids[3], ids[4], ids[6]]]
    await stage.travel(61)
    await stage.promote()
    assert await rounds(stage) == [[ids[1], ids[7]]]


async def test_an_atomic_batch_that_is_refused_takes_no_key(stage: Stage) -> None:
    await stage.publish(name="n")
    with pytest.raises(NameTaken):
        await stage.broker.publish_many([*make_keyed("a", "b"), Draft(name="n")], atomic=True)
    ids = await publish(stage, make_keyed("a", "b"))
    assert [await stage.state(id) for id in ids] == [State.READY, State.READY]


async def test_a_retry_in_a_batch_keeps_its_key_and_the_others_go_on(stage: Stage) -> None:
    a, a2, b, b2 = await publish(stage, make_keyed("a", "a", "b", "b"))
    retried, done = await stage.claim(limit=10)
    await stage.broker.settle(retried, Nack(delay=60))
    assert await complete(stage, [done]) == [AnswerKind.DONE]
    assert await rounds(stage) == [[b2]]
    await stage.travel(61)
    await stage.promote()
    assert await rounds(stage) == [[a], [a2]]
    assert (retried.id, done.id) == (a, b)


async def test_a_dead_letter_of_a_batch_frees_its_key_and_ends_without_it(stage: Stage) -> None:
    a, a2, b = await publish(stage, make_keyed("a", "a", "b"))
    dead, other = await stage.claim(limit=10)
    await stage.broker.settle(dead, SettleReject())
    (letter,) = await stage.claim("_dead_letter")
    assert await complete(stage, [letter, other]) == [AnswerKind.DONE, AnswerKind.DONE]
    assert (letter.id, other.id) == (a, b)
    assert await rounds(stage) == [[a2]]


async def test_a_message_cancelled_in_line_is_passed_over_by_a_batch(stage: Stage) -> None:
    a, a2, a3, b, b2 = await publish(stage, make_keyed("a", "a", "a", "b", "b"))
    held = await stage.claim(limit=10)
    await stage.admin.cancel(a2)
    await stage.admin.cancel(b2)
    assert await complete(stage, held) == [AnswerKind.DONE, AnswerKind.DONE]
    assert [leased.id for leased in held] == [a, b]
    assert await rounds(stage) == [[a3]]


async def test_a_message_expired_in_line_is_passed_over_by_a_batch(stage: Stage) -> None:
    drafts = [*make_keyed("a"), Draft(ordering_key="a", ttl=10), *make_keyed("a", "b")]
    a, _, a3, b = await publish(stage, drafts)
    held = await stage.claim(limit=10)
    await stage.travel(11)
    assert await complete(stage, held) == [AnswerKind.DONE, AnswerKind.DONE]
    assert [leased.id for leased in held] == [a, b]
    assert await stage.drain() == [a3]


async def test_each_item_of_a_keyed_batch_answers_for_itself(stage: Stage) -> None:
    drafts = [*make_keyed("a", "a", "b"), Draft(), Draft(dedup=Dedup("u", window=None))]
    a, a2, b, plain, unique = await publish(stage, drafts)
    held = {leased.id: leased.fence for leased in await stage.claim(limit=10)}
    items = [
        Completion(a, held[a], b"first"),
        Completion(b, held[b] + 1),
        Completion(a, held[a], b"second"),
        Completion(plain, held[plain]),
        Completion(unique, held[unique], b"only"),
        Completion(a2, held[a]),
    ]
    kinds = [answer.kind for answer in await stage.broker.complete_many(items)]
    done = AnswerKind.DONE
    assert kinds == [done, AnswerKind.LOST, AnswerKind.ALREADY, done, done, AnswerKind.INVALID]
    assert [await stage.store.result(id) for id in (a, unique)] == [b"first", b"only"]
    assert [await stage.state(id) for id in (a2, b)] == [State.READY, State.CLAIMED]
    again = await stage.broker.publish(Draft(dedup=Dedup("u", window=None)))
    assert not again.duplicate


async def test_a_batch_tells_of_the_next_in_line(stage: Stage) -> None:
    await publish(stage, make_keyed("a", "a"))
    held = await stage.claim()
    before = stage.store.wakes
    await complete(stage, held)
    assert stage.store.wakes > before


class Crew:
    """Publishers and consumers of batches, who note whose turn it was."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.out: set[str] = set()
        self.ended: dict[str, list[int]] = defaultdict(list)

    async def publish(self, at: Stage, keys: str) -> None:
        drafts = [Draft(ordering_key=key, max_attempts=99) for key in keys] + [Draft()]
        left = list(drafts)
        while left:
            answers = await at.broker.publish_many(left)
            left = [draft for draft, each in zip(left, answers, strict=True) if each.code]

    async def consume(self, at: Stage) -> None:
        while sum(map(len, self.ended.values())) < self.total:
            # A store in memory answers without giving the others a turn.
            await anyio.lowlevel.checkpoint()
            if held := await at.claim(limit=7):
                await self.run(at, held)

    async def run(self, at: Stage, held: list[Leased]) -> None:
        keys = {key for leased in held if (key := leased.meta.ordering_key) is not None}
        assert not self.out & keys
        self.out |= keys
        await anyio.lowlevel.checkpoint()
        self.out -= keys
        retried = [each for each in held if each.attempts == 0 and each.id % 3 == 0]
        for leased in retried:
            await at.broker.settle(leased, Nack(delay=0))
        done = [leased for leased in held if leased not in retried]
        for leased in done:
            self.ended[leased.meta.ordering_key or ""].append(leased.id)
        while done:
            kinds = await complete(at, done)
            assert set(kinds) <= {AnswerKind.DONE, AnswerKind.BUSY}
            done = [each for each, kind in zip(done, kinds, strict=True) if kind != "done"]


async def test_keys_hold_among_publishers_and_consumers_of_batches(stage: Stage) -> None:
    batches = ("abcab", "bcdbc", "cdacd", "dabda") * 6
    total = sum(len(keys) + 1 for keys in batches)
    crew = Crew(total)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                at = await stage.another()
                tasks.start_soon(publish_all, crew, at, batches[number::4])
                tasks.start_soon(crew.consume, await stage.another())
    keys = [ids for key, ids in crew.ended.items() if key]
    assert all(ids == sorted(ids) for ids in keys)
    assert await stage.places() == {"ended": total}


async def publish_all(crew: Crew, at: Stage, batches: Sequence[str]) -> None:
    for keys in batches:
        await crew.publish(at, keys)
