"""The schema is made once, whoever comes first, and by whatever death it is interrupted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from penstock.errors import StoreBusy, StoreTooNew, StoreUnusable
from penstock.retry_policies import RetryPolicy
from penstock.stores import migrations
from penstock.stores.migrations import Migration
from penstock.stores.postgres.connection import parse
from penstock.stores.postgres.errors import ERRORS
from penstock.stores.postgres.schema import MIGRATION_LOCK_ID, MIGRATIONS, SCHEMA, migrate
from penstock.stores.postgres.store import PostgresStore
from tests.cli.terminal import Terminal
from tests.postgres.scenes import claim, connect, execute, open_store, places, publish, wait_until
from tests.sqlite.children import children

pytestmark = pytest.mark.anyio

NEXT = SCHEMA + 1


def migration(text: str, floor: int = 1, number: int = NEXT) -> Migration:
    return migrations.read(
        f"{number:04}_step.sql", f"-- What it is for.\n-- floor: {floor}\n{text}"
    )


def list_known(*later: Migration) -> list[Migration]:
    return [*MIGRATIONS, *later]


COLUMN = migration("ALTER TABLE penstock.queue ADD COLUMN colour text;")


async def ask(url: str, question: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await execute(url, question)]


async def assert_sound(url: str, *later: Migration) -> None:
    applied = await ask(url, "SELECT number, name, checksum FROM penstock.migration ORDER BY 1")
    assert applied == [(each.number, each.name, each.checksum) for each in list_known(*later)]
    names = await ask(url, "SELECT name FROM penstock.queue ORDER BY id")
    assert names == [("_dead_letter",), ("default",), ("_callback",)]
    assert await ask(url, "SELECT 1 FROM pg_index WHERE NOT indisvalid") == []


async def test_a_new_database_gets_a_schema_of_its_own_and_nothing_else(bare: str) -> None:
    async with await open_store(bare) as store:
        assert await publish(store) == [1]
    await assert_sound(bare)
    assert await ask(
        bare,
        "SELECT DISTINCT relnamespace::regnamespace::text FROM pg_class"
        " WHERE oid >= 16384 AND relkind IN ('r', 'i', 'S')"
        " AND relnamespace <> 'pg_toast'::regnamespace",
    ) == [("penstock",)]


async def test_a_new_schema_waits_for_no_older_transaction(bare: str) -> None:
    async with connect(bare) as other:
        transaction = other.transaction(isolation="repeatable_read")
        await transaction.start()
        await other.fetchval("SELECT count(*) FROM pg_class")
        with anyio.fail_after(60):
            async with await open_store(bare) as store:
                assert await publish(store) == [1]
        await transaction.rollback()
    await assert_sound(bare)


@pytest.mark.parametrize("count", [2, 6])
async def test_processes_that_open_a_new_database_at_once_share_one_schema(
    bare: str, count: int
) -> None:
    async with children(count) as started:
        answers = await asyncio.gather(*(child.ask("open", bare) for child in started))
        assert answers == ["open"] * count
        ids = await asyncio.gather(*(child.ask("publish") for child in started))
        assert sorted(map(int, ids)) == list(range(1, count + 1))
    await assert_sound(bare)


async def test_who_migrates_at_once_applies_each_step_once(url: str) -> None:
    steps = list_known(COLUMN)
    done = await asyncio.gather(*(migrate(parse(url), steps) for _ in range(4)))
    assert sorted(map(len, done)) == [0, 0, 0, 1]
    await assert_sound(url, COLUMN)


async def test_opening_again_changes_nothing(store: PostgresStore, url: str) -> None:
    written = "SELECT max(xmin::text::bigint) FROM penstock.{}"
    tables = ("migration", "queue", "scope", "fact", "counter")
    before = [await ask(url, written.format(table)) for table in tables]
    async with await open_store(url):
        pass
    assert [await ask(url, written.format(table)) for table in tables] == before


@pytest.fixture
def newer() -> Iterator[None]:
    """This code knows a step that the store has not taken."""
    MIGRATIONS.append(COLUMN)
    yield
    MIGRATIONS.remove(COLUMN)


@pytest.mark.usefixtures("newer")
async def test_an_older_store_is_not_opened_before_it_is_migrated(url: str) -> None:
    with pytest.raises(StoreUnusable, match="step must be applied first; run penstock migrate"):
        await open_store(url)
    await migrate(parse(url))
    async with await open_store(url) as store:
        assert await publish(store) == [1]


async def test_old_workers_go_on_while_the_schema_changes(store: PostgresStore, url: str) -> None:
    await publish(store, 4)
    assert len(await claim(store, 1)) == 1
    tables = ("message", "ready", "scheduled", "lease", "history", "queue")
    text = "\n".join(f"ALTER TABLE penstock.{table} ADD COLUMN colour text;" for table in tables)
    await migrate(parse(url), list_known(migration(text)))
    await publish(store)
    assert len(await claim(store, 1)) == 1
    assert await places(store) == {"message": 5, "ready": 3, "lease": 2}


async def test_code_that_a_later_step_still_bears_may_write(url: str) -> None:
    await migrate(parse(url), list_known(COLUMN))
    async with await open_store(url) as store:
        assert await publish(store) == [1]


async def test_a_store_that_needs_newer_code_is_refused(url: str) -> None:
    await migrate(parse(url), list_known(migration("SELECT 1;", floor=NEXT)))
    with pytest.raises(StoreTooNew, match=rf"schema {NEXT} or newer.*upgrade Penstock"):
        await open_store(url)


async def test_a_step_that_is_not_the_one_this_code_has_is_refused(url: str) -> None:
    await execute(url, "UPDATE penstock.migration SET checksum = 'other'")
    with pytest.raises(StoreUnusable, match=r"migration 1 \(core\) in the store differs from"):
        await open_store(url)


async def test_a_step_waits_a_second_at_most_for_a_lock_and_then_does_nothing(url: str) -> None:
    async with connect(url) as holder:
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("LOCK TABLE penstock.queue IN ACCESS SHARE MODE")
        with pytest.raises(ERRORS, match="lock timeout"):
            await migrate(parse(url), list_known(COLUMN))
        await transaction.rollback()
    await assert_sound(url)
    assert await migrate(parse(url), list_known(COLUMN)) == [COLUMN]
    await assert_sound(url, COLUMN)


async def test_somebody_elses_turn_is_waited_for_and_not_for_ever(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.stores.postgres.schema.MIGRATION_TURN", RetryPolicy(2, 0.1, 60.0))
    async with connect(url) as holder:
        await holder.execute(f"SELECT pg_advisory_lock({MIGRATION_LOCK_ID})")
        with pytest.raises(StoreBusy, match="another process is migrating"):
            await migrate(parse(url), list_known(COLUMN))


SLOW = migration("ALTER TABLE penstock.queue ADD COLUMN colour text; SELECT pg_sleep(1000);")
SLEEPING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


async def test_a_step_that_was_killed_is_taken_again(url: str) -> None:
    task = asyncio.ensure_future(migrate(parse(url), list_known(SLOW)))
    await kill(url, SLEEPING)
    with pytest.raises(ERRORS):
        await task
    await assert_sound(url)
    await migrate(parse(url), list_known(COLUMN))
    await assert_sound(url, COLUMN)


async def kill(url: str, who: str) -> None:
    """As soon as somebody is at it."""

    async def struck() -> bool:
        found = await execute(url, f"SELECT pg_terminate_backend(pid) FROM ({who}) AS them")
        return bool(found)

    await wait_until(struck)


ONLINE = migration(
    "-- online\n"
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS message_one ON penstock.message (priority);\n"
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS message_two ON penstock.message (created_at);\n"
)
BUILDING = "SELECT pid FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting%'"


async def test_a_step_beside_the_traffic_that_was_killed_goes_on(
    store: PostgresStore, url: str
) -> None:
    await publish(store)
    async with connect(url) as holder:
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("UPDATE penstock.message SET priority = 1")
        task = asyncio.ensure_future(migrate(parse(url), list_known(ONLINE)))
        # It waits for the transaction, and keeps nobody waiting.
        await wait_until(lambda: has_rows(url, BUILDING))
        with anyio.fail_after(60):
            await publish(store)
        await kill(url, BUILDING)
        with pytest.raises(ERRORS):
            await task
        await transaction.rollback()
    assert await ask(url, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") == [(1,)]
    assert await migrate(parse(url), list_known(ONLINE)) == [ONLINE]
    await assert_sound(url, ONLINE)
    names = await ask(url, "SELECT indexname FROM pg_indexes WHERE indexname LIKE 'message_%o%'")
    assert {"message_one", "message_two"} <= {name for (name,) in names}


async def has_rows(url: str, question: str) -> bool:
    return bool(await execute(url, question))


async def test_a_step_beside_the_traffic_by_two_at_once_is_taken_once(url: str) -> None:
    done = await asyncio.gather(*(migrate(parse(url), list_known(ONLINE)) for _ in range(3)))
    assert sorted(map(len, done)) == [0, 0, 1]
    await assert_sound(url, ONLINE)


def test_steps_are_numbered_from_one_without_gaps() -> None:
    assert [each.number for each in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert all(each.floor <= each.number for each in MIGRATIONS)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_the_command_makes_a_store_and_then_has_nothing_to_do(
    terminal: Terminal, bare: str
) -> None:
    plan = ["migrate", "--plan", "--url", bare]
    steps = [f"migration {each.number} {each.name}" for each in MIGRATIONS]
    assert terminal.call(*plan, "--json").json == {"to_do": steps}
    assert terminal.call("migrate", "--url", bare, "--json").json["done"] == steps
    assert terminal.call(*plan).out == "nothing to do\n"
    assert terminal.call("migrate", "--url", bare, "--json").json["done"] == []


@pytest.mark.usefixtures("newer")
def test_the_command_brings_an_older_store_up_to_date(terminal: Terminal, url: str) -> None:
    refused = terminal.call("status", "--url", url, code=3)
    assert "penstock migrate" in refused.err
    assert terminal.call("migrate", "--plan", "--url", url).out == f"migration {NEXT} step\n"
    assert "penstock migrate" in terminal.call("status", "--url", url, code=3).err
    assert terminal.call("migrate", "--url", url).out.startswith(f"migration {NEXT} step\nschema")
    terminal.call("status", "--url", url)


def test_the_command_says_that_a_server_is_not_there(terminal: Terminal) -> None:
    said = terminal.call("migrate", "--url", "postgresql://penstock@127.0.0.1:1/queue", code=3)
    assert "cannot be reached" in said.err
    assert said.err.count("\n") == 1
