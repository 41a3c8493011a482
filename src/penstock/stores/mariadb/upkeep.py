"""What agents do as sets."""

from collections.abc import Sequence
from typing import Any

from penstock.message import State, Verb
from penstock.stores.mariadb.statement import array, text_of, tuples
from penstock.stores.mariadb.transaction import Transaction
from penstock.stores.sql.transaction import Ticket


async def promote(tx: Transaction, limit: int) -> list[int]:
    """The queues of those that are due and need no look at their key."""
    rows = await tx.all("promote_many", limit=limit)
    if rows:
        await tx.add(text_of("leave_scheduled", array=array(id for id, _ in rows)))
    return [queue for _, queue in rows]


async def expire(tx: Transaction, limit: int) -> int:
    """Ends what expired and frees no key."""
    ended = await expire_in_line(tx, (), limit)
    if ended < limit:
        ended += await end(tx, await tx.all("expire_scheduled", limit=limit - ended))
    return ended


async def expire_in_line(tx: Transaction, queues: Sequence[int], limit: int) -> int:
    """Of these queues; without any, of all."""
    rows = await tx.all("expire_ready", everywhere=not queues, queues=list(queues), limit=limit)
    return await end(tx, rows)


async def end(tx: Transaction, rows: Sequence[Any]) -> int:
    """They left their place when they were looked at."""
    if rows:
        tickets = [Ticket._make(row) for row in rows]
        await tx.add(text_of("expired", rows=tuples([told(each, tx.now) for each in tickets])))
    return len(rows)


def told(ticket: Ticket, now: int) -> tuple[Any, ...]:
    how = (Verb.EXPIRE.value, State.EXPIRED.value, now, 1)
    return (ticket.id, ticket.queue_id, ticket.attempts, ticket.deliveries, *how)
