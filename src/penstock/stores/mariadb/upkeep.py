"""Set statements of the agents: promote and expire."""

from collections.abc import Sequence
from typing import Any

from penstock.model.message import State, Verb
from penstock.stores.mariadb.statement import fill_statement, to_json_array, to_tuples
from penstock.stores.mariadb.transaction import MariaTransaction
from penstock.stores.sql.transaction import Ticket


async def promote(tx: MariaTransaction, limit: int) -> list[int]:
    """Promotes due tickets that need not wait for their key; returns their queues."""
    rows = await tx.all("promote_many", limit=limit)
    if rows:
        await tx.add(fill_statement("leave_scheduled", array=to_json_array(id for id, _ in rows)))
    return [queue for _, queue in rows]


async def expire(tx: MariaTransaction, limit: int) -> int:
    """Ends expired messages that free no key."""
    ended = await expire_in_line(tx, (), limit)
    if ended < limit:
        ended += await end_expired(tx, await tx.all("expire_scheduled", limit=limit - ended))
    return ended


async def expire_in_line(tx: MariaTransaction, queues: Sequence[int], limit: int) -> int:
    """Ends expired ready messages of these queues, or of all."""
    rows = await tx.all("expire_ready", everywhere=not queues, queues=list(queues), limit=limit)
    return await end_expired(tx, rows)


async def end_expired(tx: MariaTransaction, rows: Sequence[Any]) -> int:
    """Writes the ends of tickets that were already deleted."""
    if rows:
        tickets = [Ticket._make(row) for row in rows]
        await tx.add(
            fill_statement(
                "expired", rows=to_tuples([make_expired_row(each, tx.now) for each in tickets])
            )
        )
    return len(rows)


def make_expired_row(ticket: Ticket, now: int) -> tuple[Any, ...]:
    how = (Verb.EXPIRE.value, State.EXPIRED.value, now, 1)
    return (ticket.id, ticket.queue_id, ticket.attempts, ticket.deliveries, *how)
