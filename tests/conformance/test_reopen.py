"""What is durable is there again when the store is opened again."""

import pytest

from penstock.errors import Archived, LockLost, NameTaken, StoreClosed
from penstock.model.message import Dedup, Draft, Nack, State
from penstock.model.queue import QueueState, Schedule
from penstock.model.store_types import Cursor
from tests.conformance.acts import SETTLING
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def test_every_message_is_where_it_was(stage: Stage) -> None:
    ids = await stage.publish_each(len(SETTLING), labels={"a": "b"})
    for act, _ in SETTLING.values():
        await act(stage.broker, await stage.take())
    await stage.take()
    before = await stage.all(*ids)
    again = await stage.reopened()
    assert await again.all(*ids) == before


async def test_a_lock_outlives_a_restart(stage: Stage) -> None:
    await stage.publish_each(2)
    held, lost = await stage.claim(limit=2, lease=20)
    await stage.broker.extend(held, 600)
    again = await stage.reopened()
    await again.travel(LEASE_OVER)
    await again.sweep()
    with pytest.raises(LockLost):
        await again.broker.complete(lost)
    await again.broker.complete(held)


async def test_fences_go_on_growing(stage: Stage) -> None:
    await stage.publish()
    leased = await stage.take()
    await stage.broker.settle(leased, Nack(delay=0))
    again = await stage.reopened()
    assert (await again.take()).fence > leased.fence


async def test_an_id_is_never_used_again(stage: Stage) -> None:
    id = await stage.completed()
    await stage.travel(60)
    assert await stage.prune(1) == 1
    again = await stage.reopened()
    with pytest.raises(Archived):
        await again.admin.get(id)
    assert await again.publish() > id


async def test_positions_are_never_used_again(stage: Stage) -> None:
    await stage.completed()
    cursor = (await stage.store.feed(Cursor(), 10)).cursor
    await stage.travel(60)
    assert await stage.prune(1) == 1
    again = await stage.reopened()
    id = await again.completed()
    feed = await again.store.feed(cursor, 10)
    assert [message.id for message in feed.messages] == [row.id for row in feed.history] == [id]


async def test_keys_names_results_and_settings_are_kept(stage: Stage) -> None:
    await stage.queue("work", "codeq", max_attempts=9)
    await stage.admin.set_state("work", QueueState.PAUSED)
    await stage.admin.create_scope("other")
    await stage.admin.pause_scope("other")
    queues = await stage.admin.queues()
    id = await stage.publish(name="n", dedup=Dedup("k", None))
    done = await stage.publish(priority=9)
    await stage.broker.complete(await stage.take(), b"result")
    again = await stage.reopened()
    assert await again.admin.queues() == queues
    assert await again.admin.result(done) == b"result"
    assert (await again.broker.publish(Draft(dedup=Dedup("k", None)))).id == id
    with pytest.raises(NameTaken):
        await again.publish(name="n")


async def test_lines_of_keys_are_kept(stage: Stage) -> None:
    ids = await stage.publish_each(3, ordering_key="k")
    leased = await stage.take()
    again = await stage.reopened()
    assert await again.claim() == []
    await again.broker.complete(leased)
    assert await again.drain() == ids[1:]


async def test_schedules_cursors_and_ticks_are_kept(stage: Stage) -> None:
    schedule = await stage.admin.schedule(Schedule("n", "* * * * *", Draft()))
    await stage.store.save_cursor("lake", Cursor(0, 5, 7))
    await stage.store.claim_tick("archiver", 60, "a")
    again = await stage.reopened()
    assert await again.admin.schedules() == [schedule]
    assert (await again.store.cursors())["lake"].cursor == Cursor(0, 5, 7)
    assert not await again.store.claim_tick("archiver", 60, "b")


async def test_a_second_handle_sees_what_the_first_wrote(stage: Stage) -> None:
    other = await stage.another()
    id = await stage.publish()
    leased = await other.take()
    assert await stage.state(id) is State.CLAIMED
    await stage.broker.complete(leased)
    assert await other.state(id) is State.COMPLETED


async def test_a_closed_store_says_so(stage: Stage) -> None:
    await stage.publish()
    await stage.store.close()
    with pytest.raises(StoreClosed):
        await stage.publish()
    with pytest.raises(StoreClosed):
        await stage.claim()
    with pytest.raises(StoreClosed):
        await stage.store.census()


async def test_a_store_may_be_closed_twice(stage: Stage) -> None:
    await stage.store.close()
    await stage.store.close()
