"""Why a message does not run: every unfinished one has a cause, and what it advises helps."""

import os
import random
import socket

import pytest

from penstock.model.message import Nack, Park, Record, Settlement
from penstock.model.queue import QueueState
from penstock.model.store_types import Diagnosis, WorkerInfo
from penstock.rules.explain import Cause, CauseCode
from penstock.rules.lifecycle import CODE_CHANGED
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def explain(stage: Stage, id: int) -> list[Cause]:
    return await stage.admin.explain(id)


async def codes(stage: Stage, id: int) -> list[CauseCode]:
    return [cause.code for cause in await explain(stage, id)]


async def start_worker(
    stage: Stage,
    *,
    types: dict[str, tuple[str, ...]] | None = None,
    slots: int = 0,
    version: str = "",
) -> None:
    await stage.store.save_worker(
        WorkerInfo(
            id="w",
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=("default",),
            types=types or {},
            slots=slots,
            version=version,
        )
    )


async def test_the_line_is_diagnosed(stage: Stage) -> None:
    first, second = await stage.publish_each(2)
    _, waits = await stage.publish_each(2, ordering_key="k")
    queue_id = await stage.queue_id()
    assert await stage.store.diagnose(second, queue_id) == Diagnosis(1, 0)
    assert await stage.store.diagnose(waits, queue_id) == Diagnosis(3, 0)
    assert (await stage.store.diagnose(second, queue_id, limit=1)).ahead == 1
    assert (await stage.take()).id == first
    assert await stage.store.diagnose(second, queue_id) == Diagnosis(0, 1)


async def test_a_worker_reports_what_it_serves(stage: Stage) -> None:
    await start_worker(stage, types={"default": ("a", "b")}, slots=7, version="1.2")
    (row,) = await stage.store.workers()
    assert (row.types, row.slots, row.version) == ({"default": ("a", "b")}, 7, "1.2")
    await start_worker(stage, types={}, slots=8, version="1.3")
    (row,) = await stage.store.workers()
    assert (row.types, row.slots, row.version) == ({}, 8, "1.3")


async def test_a_message_that_no_worker_serves_says_so(stage: Stage) -> None:
    id = await stage.publish(type="mail")
    assert await codes(stage, id) == [CauseCode.NO_WORKER, CauseCode.NEXT]
    await start_worker(stage, types={"default": ("video",)})
    assert await codes(stage, id) == [CauseCode.TYPE_NOT_SERVED, CauseCode.NEXT]
    await start_worker(stage, types={"default": ("mail",)}, slots=1)
    assert await codes(stage, id) == [CauseCode.NEXT]
    (behind,) = await stage.publish_each(1, type="mail")
    await stage.take()
    assert await codes(stage, behind) == [CauseCode.SLOTS_BUSY, CauseCode.NEXT]


async def test_a_worker_that_is_gone_serves_nothing(stage: Stage) -> None:
    await start_worker(stage)
    id = await stage.publish()
    await stage.travel(3_600)
    assert CauseCode.NO_WORKER in await codes(stage, id)


async def test_a_message_behind_others_says_how_many(stage: Stage) -> None:
    await start_worker(stage)
    *_, last = await stage.publish_each(3)
    (cause,) = await explain(stage, last)
    assert (cause.code, cause.evidence) == (CauseCode.IN_LINE, {"ahead": 2})
    assert "2 messages are before it" in cause.text


async def test_switches_come_first(stage: Stage) -> None:
    id = await stage.publish()
    await stage.admin.set_state("default", QueueState.PAUSED)
    assert (await codes(stage, id))[0] is CauseCode.QUEUE_PAUSED
    await stage.admin.pause_scope("default")
    assert (await codes(stage, id))[0] is CauseCode.SCOPE_PAUSED


async def test_a_delay_a_retry_and_a_parked_message_differ(stage: Stage) -> None:
    delayed = await stage.publish(delay=60)
    assert await codes(stage, delayed) == [CauseCode.SCHEDULED]
    retried = await stage.publish()
    await stage.broker.settle(await stage.take(), Nack("ValueError: bad\nsecond line", delay=60))
    (cause,) = await explain(stage, retried)
    assert cause.code is CauseCode.RETRY
    assert "attempt 2 is due" in cause.text
    assert cause.text.endswith("after: ValueError: bad")
    parked = await stage.publish(type="unknown")
    await stage.broker.settle(await stage.take(), Park())
    (cause,) = await explain(stage, parked)
    assert (cause.code, cause.remedy) == (CauseCode.PARKED, "start a worker that has this task")
    changed = await stage.publish(type="flow")
    await stage.broker.settle(await stage.take(), Park(CODE_CHANGED))
    (cause,) = await explain(stage, changed)
    assert (cause.code, cause.evidence["reason"]) == (CauseCode.PARKED, CODE_CHANGED)
    assert "its stored steps do not fit the code of the task 'flow'" in cause.text


async def test_what_is_due_and_still_scheduled_waits_for_the_agents(stage: Stage) -> None:
    id = await stage.publish(delay=1)
    await stage.travel(60)
    assert await codes(stage, id) == [CauseCode.AGENTS_LATE]


async def test_a_held_key_names_its_holder(stage: Stage) -> None:
    holder, waits = await stage.publish_each(2, ordering_key="k")
    await stage.take()
    (cause,) = await explain(stage, waits)
    assert cause.code is CauseCode.KEY_HELD
    assert f"message {holder}, which is claimed" in cause.text


async def test_a_claimed_message_names_its_consumer(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.broker.progress(leased, 40, "page 4")
    (cause,) = await explain(stage, id)
    assert cause.code is CauseCode.RUNNING
    assert cause.text.startswith("tester runs it, 40 % done (page 4); its lease ends in ")
    assert cause.evidence["note"] == "page 4"
    await stage.admin.cancel(id)
    assert await codes(stage, id) == [CauseCode.CANCEL_REQUESTED, CauseCode.RUNNING]
    await stage.travel(LEASE_OVER)
    assert (await codes(stage, id))[-1] is CauseCode.LEASE_EXPIRED


async def test_a_fetched_message_has_not_begun(stage: Stage) -> None:
    id = await stage.publish()
    await stage.take()
    await stage.travel(5)
    assert await codes(stage, id) == [CauseCode.FETCHED]


async def test_an_ended_message_says_how(stage: Stage) -> None:
    done, dead = await stage.completed(), await stage.dead()
    assert await codes(stage, done) == [CauseCode.ENDED]
    (cause,) = await explain(stage, dead)
    assert cause.code is CauseCode.DEAD
    assert "(rejected): no good" in cause.text


@pytest.mark.parametrize("seed", range(3))
async def test_following_the_advice_runs_every_message(stage: Stage, seed: int) -> None:
    """In a random world each cause is acted on, until every message has ended."""
    await make_random_world(stage, random.Random(seed))
    for _ in range(200):
        left = await list_unfinished(stage)
        if not left:
            break
        for record in left:
            for cause in await explain(stage, record.message.id):
                await follow(stage, cause.code)
    assert await list_unfinished(stage) == []


async def make_random_world(stage: Stage, chance: random.Random) -> None:
    for _ in range(8):
        key = chance.choice([None, None, "k"])
        await stage.publish(
            ordering_key=key, priority=chance.randint(0, 2), delay=chance.choice([0, 0, 30])
        )
    if chance.random() < 0.5:
        await stage.admin.set_state("default", QueueState.PAUSED)
    for leased in await stage.claim(limit=chance.randint(1, 3)):
        if chance.random() < 0.7:
            settlements: list[Settlement] = [Nack("no", delay=20), Park()]
            await stage.broker.settle(leased, chance.choice(settlements))


async def list_unfinished(stage: Stage) -> list[Record]:
    return [record for record in await stage.admin.find(limit=50) if not record.state.final]


async def follow(stage: Stage, code: CauseCode) -> None:
    match code:
        case CauseCode.QUEUE_PAUSED:
            await stage.admin.set_state("default", QueueState.ACTIVE)
        case CauseCode.SCHEDULED | CauseCode.RETRY | CauseCode.PARKED:
            await stage.travel(40)
        case CauseCode.AGENTS_LATE | CauseCode.KEY_HELD:
            await stage.store.promote(100)
        case CauseCode.NO_WORKER:
            await start_worker(stage, slots=10)
        case CauseCode.LEASE_EXPIRED:
            await stage.sweep()
        case CauseCode.FETCHED | CauseCode.RUNNING:
            await stage.travel(LEASE_OVER)
        case CauseCode.IN_LINE | CauseCode.NEXT | CauseCode.SLOTS_BUSY:
            await stage.drain()
        case _:
            # It ended after the list was read.
            assert code is CauseCode.ENDED
