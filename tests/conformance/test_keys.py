"""One message at a time per ordering key, in the order of publishing."""

from collections import defaultdict

import anyio
import pytest

from penstock.model.message import Leased, Nack, Release, SettleReject, State
from penstock.model.store_types import AnswerKind, Completion, Lock
from tests.conformance.acts import ENDABLE, ENDINGS
from tests.conformance.stage import HOUR, LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def line(stage: Stage, count: int, key: str = "k", **fields: object) -> list[int]:
    return await stage.publish_each(count, ordering_key=key, **fields)


async def test_one_message_of_a_key_is_out_at_a_time(stage: Stage) -> None:
    ids = await line(stage, 3)
    assert [leased.id for leased in await stage.claim(limit=10)] == ids[:1]
    assert await stage.claim(limit=10) == []
    assert await stage.places() == {"lease": 1, "scheduled": 2}


async def test_a_key_moves_on_when_its_message_is_done(stage: Stage) -> None:
    ids = await line(stage, 5)
    assert await stage.drain() == ids


async def test_messages_published_one_by_one_wait_in_line(stage: Stage) -> None:
    ids = [await stage.publish(ordering_key="k") for _ in range(3)]
    assert [await stage.state(id) for id in ids] == [State.READY, State.SCHEDULED, State.SCHEDULED]
    assert await stage.drain() == ids


async def test_keys_do_not_wait_for_each_other(stage: Stage) -> None:
    await stage.queue("work")
    a, b = await line(stage, 2, "a"), await line(stage, 2, "b")
    plain = await stage.publish()
    elsewhere = await line(stage, 2, "a", queue="work")
    assert [leased.id for leased in await stage.claim(limit=10)] == [a[0], b[0], plain]
    assert [leased.id for leased in await stage.claim("work", limit=10)] == elsewhere[:1]


async def test_a_priority_does_not_jump_the_line_of_its_key(stage: Stage) -> None:
    first = await stage.publish(ordering_key="k", priority=1)
    urgent = await stage.publish(ordering_key="k", priority=9)
    assert await stage.drain() == [first, urgent]


async def test_a_retry_keeps_its_key(stage: Stage) -> None:
    ids = await line(stage, 2)
    await stage.broker.settle(await stage.take(), Nack(delay=60))
    assert await stage.promote() == 0
    assert await stage.claim() == []
    await stage.travel(61)
    await stage.promote()
    assert await stage.drain() == ids


async def test_what_comes_back_at_once_is_still_first(stage: Stage) -> None:
    ids = await line(stage, 2)
    await stage.broker.settle(await stage.take(), Release())
    await stage.broker.settle(await stage.take(), Nack(delay=0))
    await stage.take()
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    assert [leased.id for leased in await stage.claim(limit=10)] == ids[:1]


@pytest.mark.parametrize("name", ENDINGS)
async def test_every_end_frees_the_key(stage: Stage, name: str) -> None:
    ending, state = ENDINGS[name]
    await stage.queue("work")
    first = await stage.publish(ordering_key="k", **ENDABLE)
    second = await stage.publish(ordering_key="k", queue="work")
    third = await stage.publish(ordering_key="k", queue="work")
    await ending(stage)
    assert await stage.state(first) is state
    assert await stage.drain("work") == [second, third]


async def test_a_first_message_that_ends_while_it_waits_for_a_retry_frees_the_key(
    stage: Stage,
) -> None:
    ids = await line(stage, 2)
    await stage.broker.settle(await stage.take(), Nack(delay=HOUR))
    await stage.admin.cancel(ids[0])
    assert await stage.drain() == ids[1:]


async def test_a_stale_lock_in_a_batch_frees_no_key(stage: Stage) -> None:
    first, second = await line(stage, 2)
    plain = await stage.publish()
    fence = (await stage.claim(limit=9))[0].fence
    items = [Completion(first, fence + 1), Completion(plain, fence)]
    answers = await stage.broker.complete_many(items)
    assert [answer.kind for answer in answers] == [AnswerKind.LOST, AnswerKind.DONE]
    assert await stage.claim() == []
    await stage.broker.complete(Lock(first, fence))
    assert await stage.drain() == [second]


async def test_a_message_in_line_is_due_at_no_moment(stage: Stage) -> None:
    await line(stage, 2)
    promoted = await stage.store.promote(10)
    assert (promoted.count, promoted.next_at) == (0, None)


async def test_a_message_can_leave_the_line(stage: Stage) -> None:
    ids = await line(stage, 4)
    await stage.admin.cancel(ids[1])
    assert await stage.drain() == [ids[0], *ids[2:]]


async def test_a_purge_takes_the_whole_line(stage: Stage) -> None:
    await line(stage, 4)
    assert await stage.admin.purge("default", "ready", "scheduled") == 4
    assert await stage.places() == {"ended": 4}


async def test_a_message_that_expires_in_line_is_passed_over(stage: Stage) -> None:
    first = await stage.publish(ordering_key="k")
    await stage.publish(ordering_key="k", ttl=10)
    third = await stage.publish(ordering_key="k")
    await stage.travel(11)
    assert await stage.drain() == [first, third]


@pytest.mark.parametrize("limit", [2, 3, 9])
async def test_a_message_that_expires_in_a_claim_makes_way(stage: Stage, limit: int) -> None:
    await stage.publish(ordering_key="k", priority=9, ttl=10)
    successor = await stage.publish(ordering_key="k", priority=9)
    plain = await stage.publish()
    await stage.travel(11)
    taken = [leased.id for leased in await stage.claim(limit=limit)]
    assert sorted(taken + await stage.drain()) == [successor, plain]


async def test_a_redriven_message_goes_to_the_end_of_its_line(stage: Stage) -> None:
    first, second, third = await line(stage, 3)
    await stage.broker.settle(await stage.take(), SettleReject())
    leased = await stage.take()
    await stage.admin.redrive(first)
    fourth = await stage.publish(ordering_key="k")
    assert leased.id == second
    assert await stage.state(first) is State.SCHEDULED
    await stage.broker.complete(leased)
    assert await stage.drain() == [third, first, fourth]


async def test_a_redriven_message_of_a_free_key_is_ready(stage: Stage) -> None:
    id = await stage.dead(ordering_key="k")
    await stage.admin.redrive(id)
    later = await stage.publish(ordering_key="k")
    assert await stage.drain() == [id, later]


async def test_a_message_holds_no_key_before_it_is_due(stage: Stage) -> None:
    delayed = await stage.publish(ordering_key="k", delay=60)
    ids = await line(stage, 2)
    assert [leased.id for leased in await stage.claim(limit=10)] == ids[:1]
    await stage.travel(61)
    await stage.promote()
    assert await stage.claim(limit=10) == []
    assert await stage.state(delayed) is State.SCHEDULED


async def test_a_message_that_falls_due_waits_its_turn(stage: Stage) -> None:
    delayed = await stage.publish(ordering_key="k", delay=60)
    _, waiting = await line(stage, 2)
    leased = await stage.take()
    await stage.travel(61)
    await stage.promote()
    await stage.broker.complete(leased)
    assert await stage.drain() == [delayed, waiting]


async def test_a_message_that_falls_due_takes_a_free_key(stage: Stage) -> None:
    delayed = await stage.publish(ordering_key="k", delay=60)
    await stage.travel(61)
    assert await stage.promote() == 1
    assert await stage.state(delayed) is State.READY
    later = await stage.publish(ordering_key="k")
    assert await stage.drain() == [delayed, later]


async def test_a_dead_letter_in_hand_holds_no_key(stage: Stage) -> None:
    await stage.dead(ordering_key="k")
    later = await stage.publish(ordering_key="k")
    letter = await stage.take("_dead_letter")
    assert (await stage.take()).id == later
    await stage.broker.complete(letter)
    assert await stage.places() == {"lease": 1, "ended": 1}


class Crew:
    """Publishers and consumers of a few keys, who note whose turn it was."""

    def __init__(self) -> None:
        self.out: set[str] = set()
        self.done: dict[str, list[int]] = defaultdict(list)

    async def publish(self, at: Stage, keys: str) -> None:
        for key in keys:
            await at.publish(ordering_key=key, max_attempts=99)

    async def consume(self, at: Stage, total: int) -> None:
        while sum(map(len, self.done.values())) < total:
            # A store in memory answers without giving the others a turn.
            await anyio.lowlevel.checkpoint()
            for leased in await at.claim(limit=3):
                await self.run(at, leased, leased.meta.ordering_key or "")

    async def run(self, at: Stage, leased: Leased, key: str) -> None:
        assert key not in self.out
        self.out.add(key)
        await anyio.lowlevel.checkpoint()
        self.out.remove(key)
        if leased.attempts == 0 and leased.id % 3 == 0:
            await at.broker.settle(leased, Nack(delay=0))
        else:
            self.done[key].append(leased.id)
            await at.broker.complete(leased)


async def test_a_key_holds_among_many_publishers_and_consumers(stage: Stage) -> None:
    crew, lines = Crew(), ("abc", "bcd", "cda", "dab")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for keys in lines:
                tasks.start_soon(crew.publish, await stage.another(), keys * 10)
                tasks.start_soon(crew.consume, await stage.another(), 120)
    assert all(ids == sorted(ids) for ids in crew.done.values())
    assert await stage.places() == {"ended": 120}


async def test_a_waiting_message_names_the_one_that_holds_its_key(stage: Stage) -> None:
    first, second, third = [await stage.publish(ordering_key="k") for _ in range(3)]
    assert [(await stage.record(id)).blocked_by for id in (first, second, third)] == [
        None, first, first,
    ]  # fmt: skip
    assert await stage.drain() == [first, second, third]


async def test_queues_with_ordering_keys_are_known_until_their_messages_ended(
    stage: Stage,
) -> None:
    keyed, _ = await stage.queue("keyed"), await stage.queue("plain")
    await stage.publish(queue="plain")
    assert await stage.store.queues_with_keys() == frozenset()
    await stage.publish(queue="keyed", ordering_key="ada")
    assert await stage.store.queues_with_keys() == {keyed}
    assert len(await stage.drain("keyed")) == 1
    assert await stage.store.queues_with_keys() == frozenset()
