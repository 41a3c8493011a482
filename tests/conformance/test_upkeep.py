"""What agents do to a store: retention, and whose turn a tick is."""

import anyio
import pytest

from penstock.errors import Archived, NotFound
from penstock.model.message import Nack, SettleReject, State
from penstock.model.store_types import AgentRun, Cursor, Pruned, Retention
from tests.conformance.acts import ENDABLE, ENDINGS
from tests.conformance.stage import DAY, HOUR, Stage, micros

pytestmark = pytest.mark.anyio


async def export_all(stage: Stage) -> Cursor:
    """A cursor past everything there is."""
    return (await stage.store.feed(Cursor(), 10_000)).cursor


async def test_only_what_ended_long_enough_ago_leaves(stage: Stage) -> None:
    old = await stage.completed()
    await stage.travel(120)
    young = await stage.completed()
    await stage.travel(59 * 60)
    assert await stage.prune(HOUR) == 1
    with pytest.raises(Archived, match=str(old)):
        await stage.admin.get(old)
    assert await stage.state(young) is State.COMPLETED
    assert await stage.places() == {"ended": 1}


async def test_retention_counts_from_the_end(stage: Stage) -> None:
    id = await stage.publish()
    await stage.travel(10 * DAY)
    await stage.drain()
    assert await stage.prune(DAY) == 0
    await stage.travel(DAY + 1)
    assert await stage.prune(DAY) == 1
    with pytest.raises(Archived):
        await stage.store.get(id)


async def test_what_is_not_finished_stays(stage: Stage) -> None:
    dead, claimed = await stage.dead(), await stage.publish()
    await stage.take()
    ready, waiting = await stage.publish(), await stage.publish(delay=99 * DAY)
    await stage.travel(90 * DAY)
    assert await stage.prune(DAY) == 0
    states = [await stage.state(id) for id in (dead, claimed, ready, waiting)]
    assert states == [State.DEAD, State.CLAIMED, State.READY, State.SCHEDULED]


@pytest.mark.parametrize("name", ENDINGS)
async def test_every_way_to_end_is_taken_by_retention(stage: Stage, name: str) -> None:
    await stage.queue("work")
    await stage.publish(**ENDABLE)
    await ENDINGS[name][0](stage)
    await stage.travel(DAY)
    assert await stage.prune(HOUR, "work") == ENDINGS[name][1].final


async def test_nothing_is_left_of_what_left(stage: Stage) -> None:
    id = await stage.publish(name="n", correlation_id="c")
    await stage.broker.settle(await stage.take(), Nack(delay=0))
    await stage.broker.complete(await stage.take(), b"result")
    await stage.travel(60)
    assert await stage.prune(1) == 1
    assert await stage.store.named(await stage.queue_id(), "n") is None
    assert await stage.store.result(id) is None
    assert await stage.admin.find() == await stage.admin.find(correlation_id="c") == []
    assert await stage.store.recent(0, 100) == []
    assert await stage.places() == {}
    feed = await stage.store.feed(Cursor(), 100)
    assert (feed.messages, feed.history) == ([], [])


async def test_an_id_that_never_was_is_not_archived(stage: Stage) -> None:
    await stage.completed()
    for id in (0, 999):
        with pytest.raises(NotFound) as error:
            await stage.admin.get(id)
        assert error.type is NotFound


async def test_only_the_queues_asked_for_are_looked_at(stage: Stage) -> None:
    await stage.queue("work")
    here, there = await stage.completed(), await stage.completed("work")
    await stage.travel(60)
    assert await stage.prune(1, "work") == 1
    assert await stage.state(here) is State.COMPLETED
    with pytest.raises(Archived):
        await stage.store.get(there)


async def test_pruning_goes_on_where_it_stopped(stage: Stage) -> None:
    for _ in range(5):
        await stage.completed()
    await stage.travel(60)
    ids = (await stage.queue_id(),)
    now = await stage.store.now()
    pruned, seen = Pruned(0, 0, True), []
    while pruned.more:
        pruned = await stage.store.prune(Retention(ids, now, pruned.position, 2))
        seen.append(pruned.count)
    assert sum(seen) == 5
    assert max(seen) <= 2
    assert await stage.places() == {}


async def test_an_export_cursor_holds_what_it_has_not_passed(stage: Stage) -> None:
    first = await stage.completed()
    cursor = await export_all(stage)
    await stage.store.save_cursor("lake", cursor)
    second = await stage.completed()
    await stage.travel(DAY)
    assert await stage.prune(HOUR) == 1
    assert await stage.state(second) is State.COMPLETED
    await stage.store.save_cursor("lake", await export_all(stage))
    assert await stage.prune(HOUR) == 1
    for id in (first, second):
        with pytest.raises(Archived):
            await stage.store.get(id)


async def test_every_cursor_has_to_pass(stage: Stage) -> None:
    await stage.store.save_cursor("slow", await export_all(stage))
    await stage.completed()
    await stage.store.save_cursor("fast", await export_all(stage))
    await stage.travel(DAY)
    assert await stage.prune(HOUR) == 0


async def test_a_cursor_holds_the_end_of_a_message_it_saw_begin(stage: Stage) -> None:
    await stage.publish()
    await stage.store.save_cursor("lake", await export_all(stage))
    await stage.drain()
    await stage.travel(DAY)
    assert await stage.prune(HOUR) == 0


async def test_a_cursor_holds_a_message_whose_end_it_passed(stage: Stage) -> None:
    await stage.completed()
    passed = await export_all(stage)
    await stage.store.save_cursor("lake", Cursor(passed.epoch, 0, passed.history))
    await stage.travel(DAY)
    assert await stage.prune(HOUR) == 0


async def test_a_forgotten_cursor_holds_nothing_after_thirty_days(stage: Stage) -> None:
    await stage.store.save_cursor("lake", Cursor())
    await stage.completed()
    await stage.travel(29 * DAY)
    assert await stage.prune(HOUR) == 0
    await stage.travel(2 * DAY)
    assert await stage.prune(HOUR) == 1


async def test_a_result_leaves_with_its_message(stage: Stage) -> None:
    await stage.queue("work", keep_results=30 * DAY, retention=DAY)
    id = await stage.publish(queue="work")
    await stage.broker.complete(await stage.take("work"), b"result")
    await stage.travel(2 * DAY)
    assert await stage.prune(DAY, "work") == 1
    assert await stage.store.result(id) is None


async def test_a_tick_is_one_nodes(stage: Stage) -> None:
    other = await stage.another()
    assert await stage.store.claim_tick("archiver", 60, "a")
    assert not await other.store.claim_tick("archiver", 60, "b")
    assert await other.store.claim_tick("expiry", 60, "b")
    await stage.travel(50)
    assert not await other.store.claim_tick("archiver", 60, "b")
    await stage.travel(11)
    assert await other.store.claim_tick("archiver", 60, "b")
    assert not await stage.store.claim_tick("archiver", 60, "a")


async def test_whoever_has_the_tick_may_go_on(stage: Stage) -> None:
    for _ in range(3):
        assert await stage.store.claim_tick("archiver", 60, "a")
        await stage.travel(30)
    assert not await stage.store.claim_tick("archiver", 60, "b")


async def test_one_of_many_at_once_gets_the_tick(stage: Stage) -> None:
    others = [stage, await stage.another()]
    got: list[bool] = []

    async def claim(at: Stage, by: str) -> None:
        got.append(await at.store.claim_tick("archiver", 60, by))

    async with anyio.create_task_group() as tasks:
        for n in range(10):
            tasks.start_soon(claim, others[n % 2], f"node-{n}")
    assert sum(got) == 1


async def test_a_run_says_when_by_whom_and_what_it_did(stage: Stage) -> None:
    before = await stage.store.now()
    await stage.store.claim_tick("archiver", 60, "a")
    await stage.store.end_tick("archiver", "a", "pruned 3")
    await stage.store.end_tick("archiver", "b", "not mine")
    (run,) = await stage.store.agent_runs()
    assert run == AgentRun("archiver", run.at, "a", "pruned 3")
    assert before <= run.at <= await stage.store.now()


async def test_dead_letters_are_counted_by_queue(stage: Stage) -> None:
    work = await stage.queue("work")
    for name in ("default", "work", "work"):
        await stage.publish(queue=name)
        await stage.broker.settle(await stage.take(name), SettleReject())
    assert await stage.store.dead_counts() == {await stage.queue_id(): 1, work: 2}


async def test_time_is_the_stores(stage: Stage) -> None:
    before = await stage.store.now()
    await stage.travel(HOUR)
    assert await stage.store.now() >= before + micros(HOUR)


async def test_finished_messages_of_one_queue_are_pruned_on_demand(stage: Stage) -> None:
    await stage.queue("work")
    await stage.queue("other")
    old = [await stage.completed("work") for _ in range(3)]
    await stage.travel(100)
    middle = await stage.store.now()
    await stage.travel(1)
    kept = [await stage.completed("other"), await stage.completed("work"), await stage.dead("work")]
    first = await stage.admin.prune("work", before=middle, limit=2)
    assert (first.count, first.more) == (2, True)
    second = await stage.admin.prune("work", before=middle, limit=2)
    assert (second.count, second.more) == (1, False)
    assert (await stage.admin.prune("work", before=middle)).count == 0
    for id in old:
        with pytest.raises(Archived):
            await stage.admin.get(id)
    assert [(await stage.admin.get(id)).message.id for id in kept] == kept
    assert (await stage.admin.prune("work")).count == 1
