"""How many messages the next batch of a bulk action has."""

import time
from pathlib import Path

import pytest

from penstock.agents.bulk_runner import BulkRunner
from penstock.broker.bulk.steps import BulkSteps
from penstock.broker.local import Broker
from penstock.model.changes import Change, ItemVerb
from penstock.model.message import Draft
from penstock.rules.bulk import MAX_BATCH, MAX_HELD_S, MIN_BATCH, MIN_HELD_S, fit_batch
from penstock.rules.items import make_item
from penstock.stores import open as open_store


@pytest.mark.parametrize(
    ("count", "held", "commit", "size"),
    [
        (100, 0.0, 0.0, MAX_BATCH),
        (1, 0.0, 1.0, MAX_BATCH),
        (100, MIN_HELD_S, 0.0, 100),
        (100, MIN_HELD_S / 4, 0.0, MAX_BATCH),
        (100, MIN_HELD_S * 4, 0.0, 25),
        (100, MIN_HELD_S * 4, MIN_HELD_S * 2, 50),
        (100, MAX_HELD_S * 2, 3600.0, 50),
        (10, 3600.0, 0.0, MIN_BATCH),
    ],
)
def test_a_batch_is_as_large_as_others_can_wait_for(
    count: int, held: float, commit: float, size: int
) -> None:
    assert fit_batch(count, held, commit) == pytest.approx(size, abs=1)


@pytest.mark.anyio
async def test_a_slow_batch_is_followed_by_a_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.rules.bulk.MIN_HELD_S", 1e-9)
    monkeypatch.setattr("penstock.rules.bulk.MAX_HELD_S", 1e-9)
    async with await open_store(f"sqlite:///{tmp_path}/queue.db") as store:
        broker = Broker(store)
        await broker.publish_many([Draft()] * 10)
        action = await broker.bulk.start("cancel", filter="queue:default")
        steps = BulkSteps(store, broker.directory)
        stored = await steps.load(f"{action.tenant}/{action.id:012d}")
        assert stored is not None
        await steps.step(stored, "ann")
        assert steps.reader.batch == MIN_BATCH
        assert steps.free_at > 0


@pytest.mark.anyio
async def test_a_batch_holds_only_others_up_that_write(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    async with await open_store(url) as store, await open_store(url) as other:
        broker, rival = Broker(store), Broker(other)
        await broker.publish_many([Draft()] * 10)
        records = await broker.admin.find("default")
        items = [make_item(ItemVerb.CANCEL, each) for each in records]

        async def cancel_next() -> bool:
            changed = await store.advance(Change(items=(items.pop(),)))
            assert changed is not None
            return changed.held > 0 and changed.commit > 0

        await cancel_next()
        assert not await cancel_next()
        await broker.publish(Draft())
        assert await cancel_next()
        assert not await cancel_next()
        await rival.publish(Draft())
        assert await cancel_next()


@pytest.mark.anyio
async def test_a_batch_waits_until_others_had_their_turn(tmp_path: Path) -> None:
    async with await open_store(f"sqlite:///{tmp_path}/queue.db") as store:
        broker = Broker(store)
        await broker.publish_many([Draft()] * 10)
        action = await broker.bulk.start("cancel", filter="queue:default")
        steps = BulkSteps(store, broker.directory)
        stored = await steps.load(f"{action.tenant}/{action.id:012d}")
        assert stored is not None
        steps.free_at = free_at = time.monotonic() + 0.2
        await steps.step(stored, "ann")
        assert time.monotonic() >= free_at


@pytest.mark.anyio
async def test_a_rate_counts_from_the_start_of_a_batch(tmp_path: Path) -> None:
    async with await open_store(f"sqlite:///{tmp_path}/queue.db") as store:
        broker = Broker(store)
        await broker.publish_many([Draft()] * 10)
        await broker.bulk.start("cancel", filter="queue:default", rate=4)
        runner = BulkRunner(store, broker.directory, "ann")
        began = time.monotonic()
        await runner.tick()
        (due_at,) = runner.due.values()
        assert due_at >= began + 1.0
        await runner.tick()
        (action,) = await broker.bulk.list_actions()
        assert action.counts.done == 4
