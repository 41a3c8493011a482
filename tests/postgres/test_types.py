"""The index for claims by type: made beside the traffic, and made again if that was cut short."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.broker.local import Broker
from penstock.stores.postgres import schema
from penstock.stores.postgres.store import PostgresStore
from tests.cli.terminal import Terminal
from tests.postgres.scenes import connect, execute, open_store, publish, wait_until
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.anyio

STATE = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('penstock.ready_type')"


KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index"


async def valid(url: str) -> bool | None:
    """None if it is not there at all."""
    rows = await execute(url, STATE)
    return rows[0][0] if rows else None


async def doctor_finds(store: PostgresStore) -> tuple[str, bool]:
    (found,) = [check for check in await store.examine() if check.name == "type index"]
    return found.text, found.ok


async def test_a_store_nobody_claims_from_by_type_has_no_index_for_it(
    store: PostgresStore, url: str
) -> None:
    await Broker(store).admin.create_queue("plain")
    assert await valid(url) is None
    assert await doctor_finds(store) == ("not needed", True)


async def test_a_new_queue_that_is_claimed_from_by_type_gets_it(
    store: PostgresStore, url: str
) -> None:
    await Broker(store).admin.create_queue("typed", filter_by_type=True)
    assert await valid(url)
    assert await doctor_finds(store) == ("present", True)


async def test_a_queue_that_is_claimed_from_by_type_from_now_on_gets_it(
    store: PostgresStore, url: str
) -> None:
    await Broker(store).admin.set_queue("default", filter_by_type=True)
    assert await valid(url)


async def test_it_is_made_while_others_write(store: PostgresStore, url: str) -> None:
    """A lock that keeps writers out would wait for the one that is at it."""
    async with connect(url) as writer:
        transaction = writer.transaction()
        await transaction.start()
        await writer.execute("SELECT FROM penstock.ready")
        await Broker(store).admin.create_queue("typed", filter_by_type=True)
        await publish(store)
        await transaction.rollback()
    assert await valid(url) is not None


@asynccontextmanager
async def in_the_way(url: str) -> AsyncIterator[None]:
    """Somebody's transaction that has written to the table, and stays open."""
    async with connect(url) as writer:
        transaction = writer.transaction()
        await transaction.start()
        await writer.execute("UPDATE penstock.ready SET flags = 0")
        yield
        await transaction.rollback()


@pytest.fixture
async def half_built(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> PostgresStore:
    """Whoever made it waited for somebody's transaction, and was killed."""
    monkeypatch.setattr(schema, "CALL_TIMEOUT_S", 0.5)
    async with in_the_way(url):
        await Broker(store).admin.create_queue("typed", filter_by_type=True)
        assert await execute(url, KILL)
    assert await valid(url) is False
    return store


async def test_one_that_waits_too_long_for_its_caller_is_made_all_the_same(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "CALL_TIMEOUT_S", 0.5)
    async with in_the_way(url):
        await Broker(store).admin.create_queue("typed", filter_by_type=True)
        assert await valid(url) is False

    async def done() -> bool:
        return bool(await valid(url))

    await wait_until(done)


async def test_the_doctor_tells_of_one_that_is_half_built(half_built: PostgresStore) -> None:
    told = "half-built: claims by type are slow; run penstock migrate"
    assert await doctor_finds(half_built) == (told, False)


async def test_the_doctor_tells_of_one_that_is_missing(store: PostgresStore, url: str) -> None:
    await Broker(store).admin.create_queue("typed", filter_by_type=True)
    await execute(url, "DROP INDEX penstock.ready_type")
    told = "missing: claims by type are slow; run penstock migrate"
    assert await doctor_finds(store) == (told, False)


@pytest.mark.usefixtures("half_built")
async def test_the_command_repairs_one_that_is_half_built(
    url: str, tmp_path: Path, postgres_server: Postgres
) -> None:
    terminal = Terminal(tmp_path)
    assert terminal.run("migrate", "--plan", "--url", url).out == "index ready_type\n"
    assert await valid(url) is False
    assert terminal.run("migrate", "--url", url).out.startswith("index ready_type\nschema")
    assert await valid(url)
    assert terminal.run("migrate", "--plan", "--url", url).out == "nothing to do\n"
    async with await open_store(url) as store:
        assert await doctor_finds(store) == ("present", True)
