"""Implements `penstock migrate`; opening a file does the same."""

import os
import sqlite3
from contextlib import closing

from penstock.errors import StoreUnusable
from penstock.store import Durability
from penstock.stores import migrations
from penstock.stores.migrations import Migration
from penstock.stores.sqlite.connection import (
    MIGRATIONS,
    read_floor,
    refuse_foreign,
    translate_error,
)
from penstock.stores.sqlite.open import open_sqlite

MIGRATED = "SELECT 1 FROM sqlite_schema WHERE name = 'migration'"


async def upgrade(path: str, durability: Durability, *, plan: bool = False) -> list[str]:
    """Migrates and returns the steps taken; with `plan`, only lists them."""
    steps = [f"migration {each.number} {each.name}" for each in plan_migrations(path)]
    if not plan:
        await (await open_sqlite(path, durability=durability)).close()
    return steps


def plan_migrations(path: str) -> list[Migration]:
    """Lists missing migrations without creating or changing a file."""
    if not os.path.exists(path):
        return MIGRATIONS
    try:
        with closing(sqlite3.connect(path)) as db:
            return find_missing(db)
    except StoreUnusable as error:
        raise type(error)(f"{path!r}: {error}") from None
    except sqlite3.Error as error:
        raise translate_error(error, path) from None


def find_missing(db: sqlite3.Connection) -> list[Migration]:
    db.execute("PRAGMA query_only = ON")
    refuse_foreign(db)
    done = db.execute(MIGRATED).fetchone()
    rows = db.execute("SELECT number, checksum FROM migration").fetchall() if done else ()
    return migrations.find_missing(MIGRATIONS, dict(rows), read_floor(db))
