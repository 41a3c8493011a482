"""The cache of queues: concurrent callers share a read, and none sees less than it must."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock import stores
from penstock.broker.local import Broker
from penstock.broker.queue_cache import CACHE_TTL_S
from penstock.errors import StoreUnreachable
from penstock.model.message import Draft
from penstock.model.queue import Queue
from penstock.store import Store
from penstock.testing.faults import Faults

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    # A store in memory answers before another caller has asked.
    async with await stores.open(f"sqlite:///{tmp_path / 'q.db'}") as opened:
        yield opened


class HeldRead:
    """A read of the directory that the store has answered, and that has not ended."""

    def __init__(self, store: Store) -> None:
        self.broker = Broker(store)
        self.read_queues = store.queues
        self.answered, self.released = asyncio.Event(), asyncio.Event()
        self.caller = asyncio.ensure_future(self.broker.directory.refresh())

    async def queues(self) -> list[Queue]:
        queues = await self.read_queues()
        self.answered.set()
        await self.released.wait()
        return queues


@pytest.fixture
async def held(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HeldRead]:
    held = HeldRead(store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "queues", held.queues)
        await held.answered.wait()
    yield held
    await asyncio.wait((held.caller,))


async def test_concurrent_cold_publishes_share_a_read_of_the_directory(store: Store) -> None:
    names = [f"queue-{number}" for number in range(50)]
    for name in names:
        await Broker(store).admin.create_queue(name)
    faults = Faults()
    broker = Broker(faults.wrap(store))
    await asyncio.gather(*(broker.publish(Draft(queue=name)) for name in names))
    assert (faults.counts["directory_version"], faults.counts["queues"]) == (1, 1)


async def test_a_caller_during_a_read_sees_what_was_committed_before_it_called(
    held: HeldRead,
) -> None:
    await held.broker.admin.create_queue("later")
    publishing = asyncio.ensure_future(held.broker.publish(Draft(queue="later")))
    await asyncio.sleep(0)
    held.released.set()
    assert (await publishing).code is None


async def test_a_read_older_than_a_change_is_not_fresh(held: HeldRead) -> None:
    await held.broker.admin.pause_scope("default")
    held.released.set()
    await held.caller
    assert held.broker.directory.get_cached("default", "default", "default") is None


async def test_callers_during_a_read_share_the_next_one(store: Store, held: HeldRead) -> None:
    faults = Faults()
    held.broker.directory.store = faults.wrap(store)
    callers = [asyncio.ensure_future(held.broker.directory.refresh()) for _ in range(50)]
    await asyncio.sleep(0)
    held.released.set()
    await asyncio.gather(*callers)
    assert faults.counts["directory_version"] == 1


async def test_a_cancelled_caller_does_not_stop_the_read_for_others(
    held: HeldRead,
) -> None:
    held.caller.cancel()
    held.released.set()
    other = asyncio.ensure_future(held.broker.directory.refresh())
    with pytest.raises(asyncio.CancelledError):
        await held.caller
    await other


async def test_a_failed_read_fails_its_callers_and_no_later_one(store: Store) -> None:
    faults = Faults()
    broker = Broker(faults.wrap(store))
    faults.before("directory_version", StoreUnreachable("away"))
    drafts = [Draft(), Draft(), Draft()]
    failed = await asyncio.gather(*map(broker.publish, drafts), return_exceptions=True)
    assert [type(error) for error in failed] == [StoreUnreachable] * 3
    assert (await broker.publish(Draft())).code is None


async def test_queues_are_as_old_as_the_version_that_was_read_before_them(held: HeldRead) -> None:
    """What changes while a long read goes on is not part of it."""
    answered_at = time.monotonic()
    held.released.set()
    await held.caller
    assert held.broker.directory.fresh_until <= answered_at + CACHE_TTL_S
