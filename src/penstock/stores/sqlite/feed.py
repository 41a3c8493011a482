"""Reads messages and history for the export."""

from penstock.model.store_types import Cursor, Feed
from penstock.stores.sql import export
from penstock.stores.sql.rows import make_feed_message
from penstock.stores.sqlite.transaction import SqliteTransaction


async def feed(tx: SqliteTransaction, cursor: Cursor, limit: int) -> Feed:
    """Returns all rows: with a single writer, ids and positions are in commit order."""
    epoch = await export.epoch(tx, cursor)
    rows = await tx.all("feed_messages", after=cursor.message, limit=limit)
    messages = [make_feed_message(row) for row in rows]
    history = await export.recent(tx, cursor.history, limit)
    return Feed(
        messages,
        history,
        Cursor(
            epoch,
            messages[-1].id if messages else cursor.message,
            history[-1].position if history else cursor.history,
        ),
    )
