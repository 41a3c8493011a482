"""Checks that a database still has every column its migrations created, and the type index."""

from penstock.errors import StoreUnusable
from penstock.stores.mariadb.connection import MariaConnection
from penstock.stores.mariadb.statement import fill_statement

TABLE_PREFIX = "penstock_"
HELD = f"""
SELECT concat(substr(table_name, {len(TABLE_PREFIX) + 1}), '.', column_name)
FROM information_schema.columns
WHERE table_schema = database() AND table_name LIKE 'penstock\\_%'
"""
NOTED = "SELECT value FROM penstock_fact WHERE name = 'columns'"


async def note(session: MariaConnection) -> None:
    """Records the columns after a migration, so that older code knows which were dropped."""
    names = sorted(await read_columns(session))
    await session.send(fill_statement("fact_set", name="columns", value=",".join(names)))


async def refuse_incomplete(session: MariaConnection) -> None:
    """Raises at open, not when a statement first needs a missing column."""
    noted = {name for (names,) in await session.rows(NOTED) for name in names.split(",")}
    if lost := sorted(noted - await read_columns(session)):
        raise StoreUnusable(f"no column {', '.join(lost)}; restore a backup")


async def read_columns(session: MariaConnection) -> set[str]:
    return {name for (name,) in await session.rows(HELD)}


WANTED = """
SELECT count(*) FROM penstock_queue
WHERE state <> 'deleted' AND json_value(settings, '$.filter_by_type') = 1
"""
THERE = """
SELECT count(*) FROM information_schema.statistics
WHERE table_schema = database() AND table_name = 'penstock_ready' AND index_name = 'type'
"""


async def is_wanted(session: MariaConnection) -> bool:
    return bool((await session.rows(WANTED))[0][0])


async def exists(session: MariaConnection) -> bool:
    return bool((await session.rows(THERE))[0][0])


async def is_missing(session: MariaConnection) -> bool:
    return await is_wanted(session) and not await exists(session)


async def build(session: MariaConnection) -> None:
    # Building the index may take long.
    session.deadline = None
    await session.send(fill_statement("index_types"))
