"""Whoever waits for work hears of it, from this process and from others."""

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from penstock.broker.local import Broker
from penstock.model.settings import QueueSettings
from penstock.stores.sqlite.notifier import SocketNotifier, open_watch
from penstock.stores.sqlite.store import SqliteStore, open_sqlite
from tests.sqlite.children import CAP, Child, wait_until
from tests.sqlite.scenes import default_queue, open_file, publish

pytestmark = pytest.mark.anyio
linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

HOUR = 3_600.0


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look now and then: a wake-up that is lost is waited for until the test's cap."""
    monkeypatch.setattr(SocketNotifier, "longest_wait", HOUR)


@pytest.fixture(params=["memory", "file"])
async def any_store(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[SqliteStore]:
    async with await open_sqlite("" if request.param == "memory" else str(path)) as store:
        yield store


async def another_queue(store: SqliteStore) -> int:
    scope = await store.scope("default", "default")
    assert scope is not None
    return (await store.create_queue(scope.id, "another", QueueSettings())).id


async def wait(store: SqliteStore, queue_id: int) -> None:
    with anyio.fail_after(CAP):
        await store.wait_ready([queue_id], HOUR)


async def listening(store: SqliteStore, queue_id: int) -> "asyncio.Task[None]":
    """Somebody who has looked, found nothing, and waits."""
    others = len(store.notifier.waiting)
    waiting = asyncio.ensure_future(wait(store, queue_id))
    await wait_until(lambda: len(store.notifier.waiting) > others)
    return waiting


@linux
@pytest.mark.usefixtures("trusting")
async def test_a_publish_in_another_process_wakes_a_waiter(
    child: Child, store: SqliteStore, path: Path
) -> None:
    assert await child.ask("open", f"sqlite:///{path}") == "open"
    for _ in range(5):
        waiting = await listening(store, (await default_queue(store)).id)
        await child.ask("publish")
        await waiting
        await child.ask("claim")


@pytest.mark.usefixtures("trusting")
async def test_a_publish_in_this_process_wakes_a_waiter(any_store: SqliteStore) -> None:
    waiting = await listening(any_store, (await default_queue(any_store)).id)
    await publish(any_store)
    await waiting


@pytest.mark.usefixtures("trusting")
async def test_every_waiter_of_a_queue_is_woken(any_store: SqliteStore) -> None:
    queue = await default_queue(any_store)
    waiting = [await listening(any_store, queue.id) for _ in range(10)]
    await publish(any_store)
    await asyncio.gather(*waiting)


async def test_a_waiter_of_another_queue_is_not_woken() -> None:
    async with await open_sqlite("") as store:
        other = store.notifier.wait([await another_queue(store)])
        waiting = await listening(store, (await default_queue(store)).id)
        await publish(store)
        await waiting
        assert not other.done()
        other.cancel()


async def test_a_wake_ends_the_waits_for_its_queues_only(path: Path) -> None:
    bell = SocketNotifier(f"{path}.wake")
    waits = {queues: bell.wait(queues) for queues in ((1,), (2,), (1, 2), (3, 1), (3,))}
    bell.wake({1})
    woken = [queues for queues, heard in waits.items() if heard.done()]
    assert woken == [(1,), (1, 2), (3, 1)]
    bell.wake(None)
    assert all(heard.done() for heard in waits.values())
    bell.close()


async def test_a_wake_of_no_queue_wakes_nobody() -> None:
    bell = SocketNotifier(None)
    heard = bell.wait([1])
    bell.wake(())
    assert not heard.done()
    assert bell.wakes == 0
    heard.cancel()


@pytest.mark.usefixtures("trusting")
async def test_a_queue_that_has_work_is_not_waited_for(any_store: SqliteStore) -> None:
    await publish(any_store)
    await wait(any_store, (await default_queue(any_store)).id)
    await asyncio.sleep(0)
    assert not any_store.notifier.waiting


@linux
@pytest.mark.usefixtures("trusting")
async def test_no_wake_up_is_lost_between_looking_and_waiting(
    child: Child, store: SqliteStore, path: Path
) -> None:
    assert await child.ask("open", f"sqlite:///{path}") == "open"
    looks = 0

    def publish_after_the_snapshot(statement: str) -> None:
        nonlocal looks
        looks += "FROM penstock_ready" in statement
        if statement == "COMMIT" and looks == 1:
            looks += 1
            child.tell("publish")
            assert select.select([store.notifier.begin_watch()], [], [], CAP)[0]

    queue = await default_queue(store)
    # The bell alone, without the look at what others committed.
    assert store.notifier.watcher is not None
    store.notifier.watcher.close()
    store.database.reader.set_trace_callback(publish_after_the_snapshot)
    await wait(store, queue.id)
    store.database.reader.set_trace_callback(None)
    assert await child.hear() == "1"
    assert looks == 2


@linux
@pytest.mark.usefixtures("trusting")
async def test_no_wake_up_is_lost_between_an_empty_claim_and_the_wait_for_more(
    child: Child, store: SqliteStore, path: Path
) -> None:
    assert await child.ask("open", f"sqlite:///{path}") == "open"
    broker = Broker(store)
    for _ in range(20):
        claiming = asyncio.ensure_future(broker.claim("default", consumer="tester", wait=HOUR))
        await child.ask("publish")
        with anyio.fail_after(CAP):
            assert len((await claiming).messages) == 1


async def test_the_count_of_wakes_grows_with_each_publish(any_store: SqliteStore) -> None:
    before = any_store.wakes
    await publish(any_store)
    assert any_store.wakes > before


@pytest.mark.usefixtures("trusting")
async def test_a_wait_that_missed_a_wake_ends_at_once(any_store: SqliteStore) -> None:
    since = any_store.wakes
    await publish(any_store)
    with anyio.fail_after(CAP):
        await any_store.wait_ready([await another_queue(any_store)], HOUR, since)


async def test_a_wait_ends_with_its_timeout(any_store: SqliteStore) -> None:
    queue = await default_queue(any_store)
    with anyio.fail_after(CAP):
        await any_store.wait_ready([queue.id], 0.01)
    await asyncio.sleep(0)
    assert not any_store.notifier.waiting


async def test_a_waiter_that_was_cancelled_is_forgotten(any_store: SqliteStore) -> None:
    waiting = await listening(any_store, (await default_queue(any_store)).id)
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)
    assert not any_store.notifier.waiting
    await publish(any_store)


@linux
@pytest.mark.usefixtures("trusting")
async def test_the_first_wait_misses_no_publish_since_the_claim(
    store: SqliteStore, path: Path
) -> None:
    since = store.wakes
    async with await open_file(path) as other:
        await publish(other)
    with anyio.fail_after(CAP):
        await store.wait_ready([(await default_queue(store)).id], HOUR, since)


@pytest.mark.usefixtures("trusting")
async def test_closing_ends_every_wait(path: Path) -> None:
    store = await open_file(path)
    waiting = await listening(store, (await default_queue(store)).id)
    watch = store.notifier.begin_watch()
    await store.close()
    await waiting
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(watch)


async def test_ringing_writes_nothing(store: SqliteStore, path: Path) -> None:
    wake = path.with_name("queue.db.wake")
    before = wake.stat().st_mtime_ns, wake.read_bytes()
    store.notifier.ring()
    await publish(store)
    assert (wake.stat().st_mtime_ns, wake.read_bytes()) == before


async def test_a_file_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    files = os.listdir("/proc/self/fd")
    assert open_watch(str(tmp_path / "missing")) == -1
    assert os.listdir("/proc/self/fd") == files


@linux
def test_a_machine_without_watches_left_makes_waits_short(path: Path) -> None:
    program = """
import os, resource, sys
from penstock.stores.sqlite.notifier import SocketNotifier
most = max(map(int, os.listdir("/proc/self/fd"))) + 1
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
bell = SocketNotifier(sys.argv[1])
print(bell.begin_watch(), bell.file >= 0, bell.longest_wait < 0.1)
bell.ring()
bell.close()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, path], check=True, capture_output=True, text=True
    )
    assert ran.stdout.split() == ["-1", "True", "True"]


@pytest.fixture
def deaf(store: SqliteStore) -> SqliteStore:
    """A store on a machine without watches."""
    store.notifier.watch = -1
    return store


async def test_a_store_without_a_watch_hears_of_other_processes_all_the_same(
    child: Child, deaf: SqliteStore, path: Path
) -> None:
    assert await child.ask("open", f"sqlite:///{path}") == "open"
    claiming = asyncio.ensure_future(Broker(deaf).claim("default", consumer="tester", wait=CAP))
    await child.ask("publish")
    with anyio.fail_after(CAP):
        assert len((await claiming).messages) == 1


async def test_a_store_without_a_watch_closes(path: Path) -> None:
    store = await open_file(path)
    store.notifier.watch = -1
    waiting = await listening(store, (await default_queue(store)).id)
    await store.close()
    await waiting
