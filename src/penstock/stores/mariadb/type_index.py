"""The index by which claims of some types need not step over the others."""

from penstock.stores.mariadb.session import Session
from penstock.stores.mariadb.statement import text_of

WANTED = """
SELECT count(*) FROM penstock_queue
WHERE state <> 'deleted' AND json_value(settings, '$.filter_by_type') = 1
"""
THERE = """
SELECT count(*) FROM information_schema.statistics
WHERE table_schema = database() AND table_name = 'penstock_ready' AND index_name = 'type'
"""


async def wanted(session: Session) -> bool:
    return bool((await session.rows(WANTED))[0][0])


async def there(session: Session) -> bool:
    return bool((await session.rows(THERE))[0][0])


async def lacking(session: Session) -> bool:
    return await wanted(session) and not await there(session)


async def build(session: Session) -> None:
    # It may take long, and nobody waits for it.
    session.deadline = None
    await session.send(text_of("index_types"))
