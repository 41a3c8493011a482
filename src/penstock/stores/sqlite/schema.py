"""Checks that a file still has every column its migrations created."""

import sqlite3
from contextlib import closing

from penstock.errors import StoreUnusable
from penstock.stores.sqlite.connection import MIGRATIONS, split

COLUMNS = """
SELECT substr(held.name, 10) || '.' || its.name
FROM sqlite_schema AS held JOIN pragma_table_info(held.name) AS its
WHERE held.type = 'table' AND held.name GLOB 'penstock_*'
"""


def refuse_incomplete(db: sqlite3.Connection) -> None:
    """Raises at open, not when a statement first needs a missing column."""
    if lost := sorted(expected_columns() - read_columns(db)):
        raise StoreUnusable(f"no column {', '.join(lost)}; restore a backup")


def expected_columns() -> set[str]:
    with closing(sqlite3.connect(":memory:")) as db:
        for migration in MIGRATIONS:
            for statement in split(migration.text):
                db.execute(statement)
        return read_columns(db)


def read_columns(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute(COLUMNS)}
