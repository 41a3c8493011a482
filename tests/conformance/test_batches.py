"""A batch is one durable step, and each of its items answers for itself."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from penstock.errors import InvalidInput, NameTaken, PenstockError
from penstock.model.message import Draft, Leased, Nack, Release, Settlement, SettleReject, State
from penstock.model.store_types import (
    Answer,
    AnswerKind,
    Completion,
    Dedupe,
    Entry,
    Extension,
    Lock,
)
from penstock.model.uniform_batch import UniformBatch
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio

DONE, ALREADY, LOST = AnswerKind.DONE, AnswerKind.ALREADY, AnswerKind.LOST
INVALID, MISSING = AnswerKind.INVALID, AnswerKind.MISSING


async def good_stale_and_unknown(stage: Stage) -> list[Lock]:
    """Locks: held, lost to somebody, never claimed, unknown, and held again."""
    await stage.publish()
    stale = await stage.take()
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    other = await stage.take()
    first, second = await stage.publish_each(2)
    fence = (await stage.claim(limit=2))[0].fence
    ready = await stage.publish()
    assert other.id == stale.id
    return [
        Lock(first, fence),
        Lock(stale.id, stale.fence),
        Lock(ready, 77),
        Lock(9_999, 1),
        Lock(second, fence),
    ]


MIXED = [DONE, LOST, INVALID, MISSING, DONE]


def kinds(answers: list[Answer]) -> list[AnswerKind]:
    return [answer.kind for answer in answers]


async def test_completions_answer_each_for_itself(stage: Stage) -> None:
    locks = await good_stale_and_unknown(stage)
    items = [Completion(lock.id, lock.fence, b"r") for lock in locks]
    assert kinds(await stage.broker.complete_many(items)) == MIXED
    assert await stage.places() == {"ended": 2, "lease": 1, "ready": 1}
    results = [await stage.store.result(lock.id) for lock in locks]
    assert results == [b"r", None, None, None, b"r"]


async def test_settlements_answer_each_for_itself(stage: Stage) -> None:
    locks = await good_stale_and_unknown(stage)
    answers = await stage.broker.settle_many([(lock, Nack(delay=60)) for lock in locks])
    assert kinds(answers) == MIXED
    assert await stage.places() == {"scheduled": 2, "lease": 1, "ready": 1}


async def test_extensions_answer_each_for_itself(stage: Stage) -> None:
    locks = await good_stale_and_unknown(stage)
    answers = await stage.broker.extend_many([Extension(lock.id, lock.fence, 99) for lock in locks])
    assert kinds(answers) == MIXED
    ends = [answer.lease_until for answer in answers]
    assert ends == [
        (await stage.record(lock.id)).lease_until if kind is DONE else None
        for lock, kind in zip(locks, MIXED, strict=True)
    ]


async def test_one_batch_may_settle_in_many_ways(stage: Stage) -> None:
    ids = await stage.publish_each(4, max_attempts=2)
    held = await stage.claim(limit=4)
    ways: list[Settlement] = [Nack(delay=0), Nack(delay=9), SettleReject(), Release()]
    await stage.broker.settle_many(list(zip(held, ways, strict=True)))
    states = [State.READY, State.SCHEDULED, State.DEAD, State.READY]
    assert [await stage.state(id) for id in ids] == states


async def test_nacks_say_which_went_to_the_dead(stage: Stage) -> None:
    await stage.publish_each(2, max_attempts=1)
    await stage.publish_each(2)
    held = await stage.claim(limit=4)
    answers = await stage.broker.settle_many([(leased, Nack(delay=0)) for leased in held])
    assert [answer.state for answer in answers] == [State.DEAD] * 2 + [State.READY] * 2


@pytest.mark.parametrize("times", [2, 3])
async def test_a_message_completed_twice_in_a_batch_is_completed_once(
    stage: Stage, times: int
) -> None:
    id = await stage.publish()
    leased = await stage.take()
    answers = await stage.broker.complete_many([Completion(id, leased.fence, b"r")] * times)
    assert kinds(answers) == [DONE] + [ALREADY] * (times - 1)
    assert len(await stage.life(id)) == 1


async def test_a_message_nacked_twice_in_a_batch_is_nacked_once(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    answers = await stage.broker.settle_many([(leased, Nack(delay=0))] * 2)
    assert kinds(answers) == [DONE, ALREADY]
    assert await stage.counters(id) == (State.READY, 1, 1)


async def test_two_verdicts_in_a_batch_are_not_both_taken(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    answers = await stage.broker.settle_many([(leased, SettleReject()), (leased, Release())])
    assert kinds(answers) == [DONE, LOST]
    assert await stage.state(id) is State.DEAD


async def test_an_empty_batch_is_no_work(stage: Stage) -> None:
    before = await stage.all()
    assert await stage.broker.publish_many([]) == []
    assert await stage.broker.publish_many([], atomic=True) == []
    assert await stage.broker.complete_many([]) == []
    assert await stage.broker.settle_many([]) == []
    assert await stage.broker.extend_many([]) == []
    assert await stage.store.cancel([]) == await stage.store.redrive([]) == []
    assert await stage.store.settle([]) == []
    assert await stage.store.fire([]) == []
    assert await stage.all() == before


async def test_ids_of_a_batch_are_in_its_order(stage: Stage) -> None:
    bodies = [bytes([n]) for n in range(100)]
    mixed = [
        Draft(body=body, priority=n % 3, delay=n % 2, name=f"n{n}" if n % 5 == 0 else None)
        for n, body in enumerate(bodies)
    ]
    ids = [answer.id for answer in await stage.broker.publish_many(mixed)]
    assert ids == sorted(ids)
    assert [(await stage.record(id)).message.body for id in ids] == bodies


UNIFORM: dict[str, dict[str, Any]] = {
    "plain": {},
    "prioritised": {"priority": 3, "meta": '{"labels":{"a":"b"}}'},
    "delayed": {"delay": 60.0, "basis": "due"},
    "expiring": {"ttl": 60.0, "basis": "created"},
    "unique": {"dedup": Dedupe("window:k", b"\0" * 16, 60.0)},
}


@pytest.mark.parametrize("kind", UNIFORM)
async def test_a_uniform_batch_is_written_like_a_list_of_its_entries(
    stage: Stage, kind: str
) -> None:
    heading = Entry(await stage.queue_id(), "mail", b"0", **UNIFORM[kind])
    listed = Entry(await stage.queue(), "mail", b"0", **UNIFORM[kind])
    bodies = [b"%d" % number for number in range(7)]
    batch = UniformBatch(heading, bodies)
    written = await stage.store.enqueue(batch)
    expected = await stage.store.enqueue([replace(listed, body=body) for body in bodies])
    assert [(each.duplicate, each.code) for each in written] == [
        (each.duplicate, each.code) for each in expected
    ]
    ids = list(dict.fromkeys(each.id for each in written))
    assert ids == sorted(ids)
    found = [await stage.record(id) for id in ids]
    assert [record.message.body for record in found] == bodies[: len(ids)]
    assert await stage.places() == await stage.places("work")


async def test_a_uniform_batch_expires_in_its_time(stage: Stage) -> None:
    await stage.publish_each(3, ttl=60.0)
    assert await stage.store.expire(10) == 0
    await stage.travel(61)
    assert await stage.store.expire(10) == 3


async def test_a_large_batch_is_still_one(stage: Stage) -> None:
    answers = await stage.broker.publish_many([Draft()] * 2_500)
    assert len({answer.id for answer in answers}) == 2_500
    held: list[Leased] = []
    while taken := await stage.claim(limit=1_000):
        held += taken
    items = [Completion(leased.id, leased.fence) for leased in held]
    assert kinds(await stage.broker.complete_many(items)) == [DONE] * 2_500


async def test_a_refused_draft_does_not_hold_up_the_others(stage: Stage) -> None:
    await stage.publish(name="taken")
    drafts = [Draft(), Draft(name="taken"), Draft(priority=10**9), Draft(queue="no"), Draft()]
    answers = await stage.broker.publish_many(drafts)
    codes = [None, "NAME_TAKEN", "INVALID_INPUT", "NOT_FOUND", None]
    assert [answer.code for answer in answers] == codes
    assert [bool(answer.id) for answer in answers] == [code is None for code in codes]
    assert all(answer.error for answer in answers if answer.code)
    assert await stage.places() == {"ready": 3}


@pytest.mark.parametrize(
    ("bad", "error"),
    [(Draft(name="taken"), NameTaken), (Draft(priority=10**9), InvalidInput)],
)
async def test_an_atomic_batch_is_refused_whole(
    stage: Stage, bad: Draft, error: type[PenstockError]
) -> None:
    taken = await stage.publish(name="taken")
    before = await stage.all(taken)
    with pytest.raises(error):
        await stage.broker.publish_many([Draft(), Draft(name="new"), bad, Draft()], atomic=True)
    assert await stage.all(taken) == before
    await stage.publish(name="new")


async def test_an_atomic_batch_enters_whole(stage: Stage) -> None:
    drafts = [Draft(name="a"), Draft(ordering_key="k"), Draft(delay=9), Draft()]
    answers = await stage.broker.publish_many(drafts, atomic=True)
    assert [answer.code for answer in answers] == [None] * 4
    assert await stage.places() == {"ready": 3, "scheduled": 1}


async def test_nobody_sees_half_a_batch(stage: Stage) -> None:
    other = await stage.another()
    seen: set[int] = set()
    done = anyio.Event()

    async def publish() -> None:
        for _ in range(3):
            await stage.broker.publish_many([Draft()] * 1_000)
        done.set()

    async def watch() -> None:
        while not done.is_set():
            seen.add((await other.places()).get("ready", 0))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        tasks.start_soon(publish)
    assert {count % 1_000 for count in seen} == {0}


async def test_of_many_callers_at_once_each_gets_its_own_answer(stage: Stage) -> None:
    await stage.publish(name="taken")
    outcomes: dict[int, int | str] = {}

    async def publish(n: int) -> None:
        try:
            outcomes[n] = await stage.publish(bytes([n]), name="taken" if n % 4 == 0 else None)
        except NameTaken as error:
            outcomes[n] = error.code

    async with anyio.create_task_group() as tasks:
        for n in range(40):
            tasks.start_soon(publish, n)
    for n, outcome in outcomes.items():
        if n % 4 == 0:
            assert outcome == "NAME_TAKEN"
        else:
            assert (await stage.record(int(outcome))).message.body == bytes([n])


async def test_of_many_settling_at_once_each_gets_its_own_answer(stage: Stage) -> None:
    ids = await stage.publish_each(30)
    held = await stage.claim(limit=30)
    ways: list[Callable[[], Nack | Release]] = [lambda: Nack(delay=5), Release]
    answers: dict[int, State | None] = {}

    async def settle(leased: Leased) -> None:
        answers[leased.id] = (await stage.broker.settle(leased, ways[leased.id % 2]())).state

    async with anyio.create_task_group() as tasks:
        for leased in held:
            tasks.start_soon(settle, leased)
    assert answers == {id: await stage.state(id) for id in ids}
    assert len(set(answers.values())) == 2
