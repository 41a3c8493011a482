"""What was confirmed is kept, and no number is handed out twice."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock import stores
from penstock.errors import InvalidState
from penstock.model.message import Moment
from penstock.model.store_types import Completion, Cursor
from penstock.store import Durability
from penstock.stores.sqlite.connection import connect, set_up
from penstock.stores.sqlite.database import read_system_clock
from penstock.stores.sqlite.store import open_sqlite
from penstock.stores.sqlite.writer import ThreadWriter
from tests.sqlite.children import CAP, Child
from tests.sqlite.scenes import claim, open_file, places, publish

pytestmark = pytest.mark.anyio

SKIP = 2**20
LEVELS: dict[Durability, int] = {"safe": 2, "fast": 1}


@pytest.mark.parametrize("durability", LEVELS)
async def test_the_durability_asked_for_is_the_one_shown_and_used(
    path: Path, durability: Durability
) -> None:
    async with await open_sqlite(str(path), durability=durability) as store:
        assert store.capabilities.durability == durability
        level = store.database.writing.db.execute("PRAGMA synchronous").fetchone()
        assert level == (LEVELS[durability],)


@pytest.mark.parametrize(
    ("query", "durability"),
    [("", "safe"), ("?durability=safe", "safe"), ("?durability=fast", "fast")],
)
async def test_a_url_asks_for_a_durability(path: Path, query: str, durability: str) -> None:
    async with await stores.open(f"sqlite:///{path}{query}") as store:
        assert store.capabilities.durability == durability


@pytest.mark.parametrize("durability", LEVELS)
async def test_setting_up_is_durable_however_fast_the_store_is(
    path: Path, durability: Durability
) -> None:
    """Numbers are skipped once, and not again from the same start after another power failure."""
    levels: list[int] = []

    def clock() -> Moment:
        levels.extend(db.execute("PRAGMA synchronous").fetchone())
        return read_system_clock()

    with closing(connect(str(path), durability)) as db:
        set_up(db, clock, durability)
        assert set(levels) == {LEVELS["safe"]}
        assert db.execute("PRAGMA synchronous").fetchone() == (LEVELS[durability],)


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_message_outlives_the_process_that_was_told_it_is_stored(
    child: Child, path: Path, durability: Durability
) -> None:
    assert await child.ask("open", f"sqlite:///{path}?durability={durability}") == "open"
    ids = await child.ask("publish", 3)
    await child.kill()
    async with await open_file(path) as store:
        assert [str(message.id) for message in await claim(store)] == ids.split()


async def test_a_claim_outlives_the_process_that_was_told_of_it(child: Child, path: Path) -> None:
    await child.ask("open", f"sqlite:///{path}")
    await child.ask("publish", 3)
    assert await child.ask("claim") == "1 2 3"
    await child.kill()
    async with await open_file(path) as store:
        assert await places(store) == {"message": 3, "lease": 3}


async def test_a_second_handle_in_a_process_costs_the_first_no_locks(
    child: Child, path: Path
) -> None:
    """Whoever closes last deletes the log; a process with two handles must still count."""
    url = f"sqlite:///{path}"
    assert await child.ask("open", url) == "open"
    assert await child.ask("open_again", url) == "open"
    assert await child.ask("publish") == "1"
    await (await open_file(path)).close()
    assert await child.ask("publish") == "2"
    async with await open_file(path) as store:
        assert [message.id for message in await claim(store)] == [1, 2]


async def test_a_fast_store_syncs_soon_what_it_does_not_sync_at_once(path: Path) -> None:
    synced = threading.Event()
    async with await open_sqlite(str(path), durability="fast") as store:
        assert isinstance(store.database.writer, ThreadWriter)
        store.database.writer.sync = synced.set
        for _ in range(2):
            await publish(store)
            assert await asyncio.to_thread(synced.wait, CAP)
            synced.clear()


async def test_a_safe_store_has_nothing_to_sync_later(path: Path) -> None:
    async with await open_file(path) as store:
        assert isinstance(store.database.writer, ThreadWriter)
        assert store.database.writer.sync is None


def reboot(path: Path) -> None:
    """The file as another boot of the machine finds it."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE penstock_fact SET value = 'the boot before' WHERE name = 'fast_boot'")


async def live(path: Path, durability: Durability) -> tuple[int, int, int, int]:
    """Publishes, claims and completes one message: its id, fence and position, and the epoch."""
    async with await open_sqlite(str(path), durability=durability) as store:
        await publish(store)
        (leased,) = await claim(store)
        await store.complete([Completion(leased.id, leased.fence)])
        feed = await store.feed(Cursor(), 1_000_000)
        return leased.id, leased.fence, feed.history[-1].position, feed.cursor.epoch


@pytest.mark.parametrize("durability", LEVELS)
async def test_after_another_boot_numbers_of_a_fast_store_are_skipped(
    path: Path, durability: Durability
) -> None:
    assert await live(path, "fast") == (1, 1, 1, 0)
    reboot(path)
    assert await live(path, durability) == (SKIP + 2, SKIP + 2, SKIP + 2, 1)


async def test_numbers_that_were_handed_out_and_all_lost_are_skipped(path: Path) -> None:
    """The power went before the first commit after opening was on the disk."""
    await (await open_sqlite(str(path), durability="fast")).close()
    reboot(path)
    assert await live(path, "fast") == (SKIP + 1, SKIP + 1, SKIP + 1, 1)


async def test_the_same_boot_skips_nothing(path: Path) -> None:
    assert await live(path, "fast") == (1, 1, 1, 0)
    assert await live(path, "fast") == (2, 2, 2, 0)


async def test_a_store_that_was_always_safe_skips_nothing(path: Path) -> None:
    assert await live(path, "safe") == (1, 1, 1, 0)
    reboot(path)
    assert await live(path, "safe") == (2, 2, 2, 0)


async def test_a_safe_store_that_becomes_fast_skips_from_then_on(path: Path) -> None:
    assert await live(path, "safe") == (1, 1, 1, 0)
    assert await live(path, "fast") == (2, 2, 2, 0)
    reboot(path)
    assert await live(path, "safe") == (SKIP + 3, SKIP + 3, SKIP + 3, 1)


async def test_a_cursor_of_a_later_epoch_is_of_another_store(path: Path) -> None:
    async with await open_file(path) as store:
        with pytest.raises(InvalidState, match="epoch"):
            await store.feed(Cursor(epoch=1), 1)


Ask = Callable[[sqlite3.Connection], object]


def pragma(name: str) -> Ask:
    return lambda db: db.execute(f"PRAGMA {name}").fetchone()[0]


@pytest.mark.parametrize(
    ("ask", "value"), [(pragma("journal_mode"), "wal"), (pragma("auto_vacuum"), 2)]
)
async def test_the_file_is_made_as_designed(path: Path, ask: Ask, value: object) -> None:
    await (await open_file(path)).close()
    with closing(sqlite3.connect(path)) as db:
        assert ask(db) == value
