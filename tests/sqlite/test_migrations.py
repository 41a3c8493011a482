"""The schema is made once, whoever comes first, and by whatever death it is interrupted."""

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StoreTooNew, StoreUnusable
from penstock.stores import migrations
from penstock.stores.migrations import Migration
from penstock.stores.sqlite.connection import (
    MIGRATIONS,
    SCHEMA,
    connect,
    set_up,
    split,
)
from penstock.stores.sqlite.database import read_system_clock
from penstock.stores.sqlite.writer import WriteTurns
from tests.sqlite.children import Child, children, wait_until
from tests.sqlite.scenes import open_file, places, publish

pytestmark = pytest.mark.anyio

INCREMENTAL = 2
ROUNDS = 3


def ask(path: Path, question: str) -> list[Any]:
    """What another program reads in the file."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(question).fetchall()


def assert_sound(path: Path) -> None:
    assert ask(path, "PRAGMA integrity_check") == [("ok",)]
    applied = ask(path, "SELECT number, name, checksum, floor FROM penstock_migration")
    assert applied == [(m.number, m.name, m.checksum, m.floor) for m in MIGRATIONS]
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]
    assert ask(path, "PRAGMA auto_vacuum") == [(INCREMENTAL,)]
    names = ask(path, "SELECT name FROM penstock_queue ORDER BY id")
    assert names == [("_dead_letter",), ("default",), ("_callback",)]


@pytest.mark.parametrize("count", [2, 8])
async def test_processes_that_open_a_fresh_file_at_once_share_one_schema(
    tmp_path: Path, count: int
) -> None:
    async with children(count) as started:
        for number in range(ROUNDS):
            path = tmp_path / f"{number}.db"
            url = f"sqlite:///{path}"
            answers = await asyncio.gather(*(child.ask("open", url) for child in started))
            assert answers == ["open"] * count
            ids = await asyncio.gather(*(child.ask("publish") for child in started))
            assert sorted(map(int, ids)) == list(range(1, count + 1))
            await asyncio.gather(*(child.ask("close") for child in started))
            assert_sound(path)


async def test_a_file_that_another_process_migrates_first_is_not_migrated_twice(
    path: Path,
) -> None:
    begun: list[str] = []

    def migrate_first(statement: str) -> None:
        if statement == "BEGIN IMMEDIATE" and not begun:
            begun.append(statement)
            with closing(connect(str(path), "safe")) as other:
                set_up(other, read_system_clock, "safe")

    with closing(connect(str(path), "safe")) as db:
        db.set_trace_callback(migrate_first)
        set_up(db, read_system_clock, "safe")
    assert begun
    assert_sound(path)


def is_blocked(pid: int) -> bool:
    """It waits for an advisory lock, by the kernel's table."""
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(words[1] == "->" and words[5] == str(pid) for words in waiting)


async def test_a_process_waits_while_another_switches_a_fresh_file_to_wal(
    child: Child, path: Path
) -> None:
    gate = WriteTurns(f"{path}.lock")
    assert gate.enter()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        child.tell("open", f"sqlite:///{path}")
        await wait_until(lambda: is_blocked(child.pid) or child.line.poll())
        other.execute("ROLLBACK")
    gate.leave()
    gate.close()
    assert await child.hear() == "open"
    assert_sound(path)


STOPS = (
    "CREATE TABLE penstock_lease",
    "INSERT INTO penstock_migration",
    "INSERT INTO penstock_scope",
    "COMMIT",
)


async def stop_migrating(child: Child, path: Path, at: str) -> None:
    child.tell("stop_migrating", path, at)
    assert await child.hear() == "inside"
    await child.stopped()


@pytest.mark.parametrize("at", STOPS)
async def test_a_process_killed_while_migrating_leaves_a_file_that_opens(
    child: Child, path: Path, at: str
) -> None:
    await stop_migrating(child, path, at)
    await child.kill()
    assert ask(path, "SELECT count(*) FROM sqlite_schema") == [(0,)]
    async with await open_file(path) as store:
        assert await publish(store) == [1]
    assert_sound(path)


async def test_a_process_stopped_while_migrating_goes_on_after_it_continues(
    child: Child, path: Path
) -> None:
    await stop_migrating(child, path, "COMMIT")
    child.go_on()
    assert await child.hear() == "finished"
    assert_sound(path)


async def test_a_later_migration_that_old_code_may_live_with_is_accepted(path: Path) -> None:
    async with await open_file(path) as store:
        await publish(store)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("ALTER TABLE penstock_queue ADD COLUMN colour TEXT")
        db.execute(
            "INSERT INTO penstock_migration VALUES (?, 'colour', 'abc', 1, 0)", (SCHEMA + 1,)
        )
    async with await open_file(path) as store:
        await publish(store)
        assert await places(store) == {"message": 2, "ready": 2}


async def test_opening_again_changes_nothing(path: Path) -> None:
    await (await open_file(path)).close()
    with closing(sqlite3.connect(path)) as db:
        before = list(db.iterdump())
    await (await open_file(path)).close()
    with closing(sqlite3.connect(path)) as db:
        assert list(db.iterdump()) == before


def migration(number: int, floor: int = 1) -> Migration:
    return migrations.read(f"{number:04}_step.sql", f"-- floor: {floor}\nSELECT {number};")


def test_what_was_not_applied_is_missing_in_order() -> None:
    known = [migration(1), migration(2), migration(3)]
    applied = {1: known[0].checksum}
    assert migrations.find_missing(known, applied, 1) == known[1:]


def test_a_floor_above_the_code_is_too_new_and_one_at_it_is_not() -> None:
    known = [migration(1), migration(2)]
    with pytest.raises(StoreTooNew):
        migrations.find_missing(known, {}, 3)
    assert migrations.find_missing(known, {}, 2) == known


def test_a_migration_says_its_floor() -> None:
    with pytest.raises(StoreUnusable, match=r"0001_core\.sql does not declare its floor"):
        migrations.read("0001_core.sql", "SELECT 1;")


def test_a_script_is_split_into_all_its_statements() -> None:
    for each in MIGRATIONS:
        made = re.findall(r"^(?:CREATE|INSERT|ALTER|UPDATE|DROP|DELETE)\b", each.text, re.MULTILINE)
        assert len(split(each.text)) == len(made)


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    assert [each.number for each in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert all(each.floor <= each.number for each in MIGRATIONS)
