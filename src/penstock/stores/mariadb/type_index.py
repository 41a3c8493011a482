"""The index by which claims of some types need not step over the others."""

from penstock.stores.mariadb.session import MariaConnection
from penstock.stores.mariadb.statement import fill_statement

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
    # It may take long, and nobody waits for it.
    session.deadline = None
    await session.send(fill_statement("index_types"))
