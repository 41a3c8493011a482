"""Implements `penstock migrate`; opening a file does the same."""

import os
import sqlite3
from contextlib import closing

from penstock.errors import StoreUnusable
from penstock.store import Durability
from penstock.stores.migrations import Migration
from penstock.stores.sqlite.connection import MIGRATED, MIGRATIONS, find_missing, translate_error
from penstock.stores.sqlite.open import open_sqlite


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
        with closing(connect_to_look(path)) as db:
            return find_missing(db)
    except StoreUnusable as error:
        raise type(error)(f"{path!r}: {error}") from None
    except sqlite3.Error as error:
        raise translate_error(error, path) from None


def has_tables(path: str) -> bool:
    """True if the file has Penstock's tables; one of another program has not."""
    if not os.path.exists(path):
        return False
    try:
        with closing(connect_to_look(path)) as db:
            return db.execute(MIGRATED).fetchone() is not None
    except sqlite3.Error:
        # Opening it says what is wrong with the file.
        return True


def connect_to_look(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path)
    db.execute("PRAGMA query_only = ON")
    return db
