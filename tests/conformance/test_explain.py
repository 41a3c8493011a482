"""Why a message does not run: every unfinished one has a cause, and what it advises helps."""

import os
import random
import socket
from collections.abc import Awaitable, Callable

import pytest

from penstock.agents.historian import Historian
from penstock.model.explain import Cause, CauseCode
from penstock.model.message import After, Draft, Flag, Leased, Nack, Park, Record
from penstock.model.queue import QueueState
from penstock.model.store_types import Diagnosis, Entry, WorkerInfo
from penstock.model.waiting import Hold, SignalDraft
from penstock.rules.lifecycle import CODE_CHANGED
from tests.conformance.stage import LEASE_OVER, Stage
from tests.conformance.test_waiting import ask

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


async def test_a_worker_of_another_scope_does_not_serve_the_queue(stage: Stage) -> None:
    await stage.broker.admin.create_scope("billing")
    await stage.broker.admin.create_queue("default", scope="billing")
    id = await stage.publish()
    elsewhere = WorkerInfo("w", socket.gethostname(), os.getpid(), ("default",), scope="billing")
    await stage.broker.save_worker(elsewhere)
    assert await codes(stage, id) == [CauseCode.NO_WORKER, CauseCode.NEXT]
    other = await stage.broker.publish(Draft(queue="default"), scope="billing")
    (cause,) = await stage.admin.explain(other.id, scope="billing")
    assert cause.code is CauseCode.NEXT


async def test_a_queue_that_was_worked_on_lately_has_a_consumer(stage: Stage) -> None:
    await stage.completed()
    await Historian(stage.store, stage.broker.directory, "me").tick()
    id = await stage.publish()
    assert await codes(stage, id) == [CauseCode.NEXT]
    await stage.travel(LEASE_OVER * 2)
    assert CauseCode.NO_WORKER in await codes(stage, id)


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


SWITCHES: tuple[Callable[[Stage], Awaitable[object]], ...] = (
    lambda stage: stage.admin.set_state("default", QueueState.PAUSED),
    lambda stage: stage.admin.set_state("default", QueueState.ARCHIVED),
    lambda stage: stage.admin.pause_scope("default"),
    lambda stage: stage.broker.scopes.archive("default"),
)
SIGNAL = Hold(kind="signal", name="go")
SLEEP = Hold(kind="moment", delay=60.0)
# These go on until other messages have gone on.
ENDINGS = {CauseCode.ENDED, CauseCode.DEAD}
SHARED = {CauseCode.IN_LINE, CauseCode.KEY_HELD}


@pytest.mark.parametrize("seed", range(6))
async def test_following_the_advice_runs_every_message(stage: Stage, seed: int) -> None:
    """In a random world each unfinished message has a cause. Acting on the first one ends it."""
    await make_random_world(stage, random.Random(seed))
    for switch in SWITCHES[seed : seed + 1]:
        await switch(stage)
    for _ in range(60):
        left = [record.message.id for record in await list_unfinished(stage)]
        if not left:
            return
        for id in left:
            await advance_message(stage, id)
    assert await list_unfinished(stage) == []


async def advance_message(stage: Stage, id: int) -> None:
    first, *_ = await explain(stage, id)
    await follow(stage, id, first)
    if first.code not in SHARED and first.evidence.get("kind") != "after":
        causes = await explain(stage, id)
        assert causes, first
        assert causes[0].code is not first.code or first.code in ENDINGS, (first, causes)


async def make_random_world(stage: Stage, chance: random.Random) -> None:
    """Messages in a line, with keys, delays, types, holds, leases, parks and cancel requests."""
    for _ in range(8):
        await stage.publish(
            type=chance.choice(["mail", "video"]),
            ordering_key=chance.choice([None, None, "k"]),
            priority=chance.randint(0, 2),
            delay=chance.choice([0, 0, 30]),
        )
    claimed = await stage.claim(limit=chance.randint(2, 5))
    for leased in claimed:
        await settle_somehow(stage, leased, chance)
    waiter = Entry(
        await stage.queue_id(), "mail", b"", flags=Flag.HELD, after=After(ids=(claimed[0].id,))
    )
    await stage.store.enqueue([waiter], atomic=True)
    await stage.store.resume_held()
    if chance.random() < 0.7:
        await start_worker(stage, types={"default": ("mail",)}, slots=chance.choice([0, 1]))


async def settle_somehow(stage: Stage, leased: Leased, chance: random.Random) -> None:
    match chance.choice(["hold", "cancel", "park", "changed", "nack", "sleep", "signal"]):
        case "cancel":
            await stage.admin.cancel(leased.id)
        case "park":
            await stage.broker.settle(leased, Park())
        case "changed":
            await stage.broker.settle(leased, Park(CODE_CHANGED))
        case "nack":
            await stage.broker.settle(leased, Nack("no", delay=20))
        case "sleep":
            await stage.store.wait(ask(leased, SLEEP))
        case "signal":
            await stage.store.wait(ask(leased, SIGNAL))
    await stage.store.resume_held()


async def list_unfinished(stage: Stage) -> list[Record]:
    return [record for record in await stage.admin.find(limit=50) if not record.state.final]


async def follow(stage: Stage, id: int, cause: Cause) -> None:
    """Does what the cause advises."""
    if cause.code in REMEDIES:
        await REMEDIES[cause.code](stage)
        return
    match cause.code:
        case CauseCode.SCHEDULED | CauseCode.RETRY | CauseCode.PARKED:
            due_at = cause.evidence["due_at"]
            assert isinstance(due_at, int)
            await stage.travel((due_at - await stage.store.now()) / 1_000_000 + 1)
        case CauseCode.WAITS:
            await follow_wait(stage, id, cause)
        case CauseCode.KEY_HELD:
            holder = cause.evidence["holder"]
            assert isinstance(holder, int)
            await advance_message(stage, holder)
        case CauseCode.CANCEL_REQUESTED:
            await stage.admin.cancel(id, force=True)
        case _:
            assert cause.code in ENDINGS, cause


async def complete_next(stage: Stage) -> None:
    await stage.broker.complete(await stage.take())


async def start_able_worker(stage: Stage) -> None:
    await start_worker(stage, types={"default": ("mail", "video")}, slots=100)


REMEDIES: dict[CauseCode, Callable[[Stage], Awaitable[object]]] = {
    CauseCode.QUEUE_PAUSED: lambda stage: stage.admin.set_state("default", QueueState.ACTIVE),
    CauseCode.QUEUE_ARCHIVED: lambda stage: stage.admin.set_state("default", QueueState.ACTIVE),
    CauseCode.SCOPE_PAUSED: lambda stage: stage.admin.pause_scope("default", paused=False),
    CauseCode.SCOPE_ARCHIVED: lambda stage: stage.broker.scopes.unarchive("default"),
    CauseCode.AGENTS_LATE: lambda stage: stage.store.promote(100),
    CauseCode.NO_WORKER: start_able_worker,
    CauseCode.TYPE_NOT_SERVED: start_able_worker,
    CauseCode.SLOTS_BUSY: start_able_worker,
    CauseCode.LEASE_EXPIRED: lambda stage: stage.sweep(),
    CauseCode.FETCHED: lambda stage: stage.travel(LEASE_OVER),
    CauseCode.RUNNING: lambda stage: stage.travel(LEASE_OVER),
    CauseCode.IN_LINE: complete_next,
    CauseCode.NEXT: complete_next,
}


async def follow_wait(stage: Stage, id: int, cause: Cause) -> None:
    match cause.evidence["kind"]:
        case "signal":
            await stage.store.signal(SignalDraft(id=id, name="go", body=b"1"))
        case "moment":
            await stage.travel(61)
    await stage.store.resume_held()
