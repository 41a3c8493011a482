"""Verbs of the agents and the health checks shared by the SQL stores."""

from collections.abc import Sequence
from heapq import nsmallest
from itertools import pairwise
from typing import Any

from penstock.model.message import Flag, State, Verb
from penstock.model.store_types import Firing, Promoted, Pruned, Retention
from penstock.store import Check
from penstock.stores.sql import documents, ordering_keys
from penstock.stores.sql.export import ready_since
from penstock.stores.sql.publish import publish_checked
from penstock.stores.sql.settle import end
from penstock.stores.sql.transaction import SqlTransaction, Ticket

EXPORT_HOLD = 30 * 86_400_000_000
# Tables of which rows are deleted with a message. Results come first, because edges and ends show
# which messages wait for them.
TABLES = ("result", "history", "message", "name", "step", "signal", "edge", "hold")
# Cursors of agents, which hold retention for a shorter time, have names that begin like this.
AGENT_PREFIX = "agent:"
AGENT_HOLD = 86_400_000_000
# Distinct ranks of one queue that aging looks at.
MAX_LEVELS = 10_000


async def promote(tx: SqlTransaction, limit: int) -> Promoted:
    rows = await tx.all("due", now=tx.now, limit=limit)
    for *ticket, key in rows:
        await promote_one(tx, Ticket(*ticket), key)
    return Promoted(len(rows), tx.now, await next_due(tx))


async def promote_one(tx: SqlTransaction, ticket: Ticket, key: str | None) -> None:
    waits = ticket.flags & Flag.KEYED and await tx.one("is_head", id=ticket.id) is None
    if waits and key is not None:
        await tx.run("get_in_line", id=ticket.id)
        await ordering_keys.advance(tx, ticket.queue_id, key)
        return
    if await tx.one("take_scheduled", id=ticket.id) is not None:
        await tx.put_ready(ticket)


async def next_due(tx: SqlTransaction) -> int | None:
    row = await tx.one("next_due")
    return row[0] if row else None


async def expire(tx: SqlTransaction, limit: int) -> int:
    ended = await end_all(tx, await tx.all("expired_ready", now=tx.now, limit=limit))
    if ended < limit:
        for (id,) in await tx.all("expired_scheduled", now=tx.now, limit=limit - ended):
            ended += await expire_one(tx, await tx.one("take_scheduled", id=id))
    return ended


async def end_all(tx: SqlTransaction, rows: Sequence[Any]) -> int:
    ended = 0
    for queue_id, rank, id in rows:
        row = await tx.one("take_ready", queue_id=queue_id, rank=rank, id=id)
        ended += await expire_one(tx, row)
    return ended


async def expire_one(tx: SqlTransaction, row: Sequence[object] | None) -> bool:
    # Ending one may have made the next of its key ready.
    if row is None:
        return False
    await end(tx, Ticket._make(row), Verb.EXPIRE, State.EXPIRED)
    return True


async def age(tx: SqlTransaction, queue_id: int, moves: Sequence[tuple[int, int, int]]) -> int:
    """Moves the tickets that are still ready at their rank."""
    moved = 0
    for id, rank, above in moves:
        moved += await tx.run("age", above=above, queue_id=queue_id, rank=rank, id=id)
    return moved


async def find_aging(
    tx: SqlTransaction, queue_id: int, waited: float, limit: int
) -> list[tuple[int, int, int]]:
    """Finds the oldest tickets below another rank that have been ready for `waited` seconds.

    Returns (id, rank, rank above) of each.
    """
    before = tx.now - int(waited * 1_000_000)
    found: list[tuple[int, int, int]] = []
    for above, rank in pairwise(await list_levels(tx, queue_id)):
        rows = await tx.all("waited", queue_id=queue_id, rank=rank, before=before, limit=limit)
        since = await ready_since(tx, [id for (id,) in rows])
        found += [(id, rank, above) for id, moment in since.items() if moment <= before]
        if len(found) > 2 * limit:
            found = nsmallest(limit, found)
    return sorted(found)[:limit]


async def list_levels(tx: SqlTransaction, queue_id: int) -> list[int]:
    ranks: list[int] = []
    rank = -(2**62)
    while len(ranks) < MAX_LEVELS:
        row = await tx.one("next_rank", queue_id=queue_id, rank=rank)
        if row is None:
            break
        rank = row[0]
        ranks.append(rank)
    return ranks


async def find_prunable(tx: SqlTransaction, retention: Retention) -> tuple[list[int], Pruned]:
    """Finds messages past retention in one range of history."""
    message, history = await tx.one(
        "held_by_cursors", since=tx.now - EXPORT_HOLD, agents_since=tx.now - AGENT_HOLD
    )
    queues = frozenset(retention.queue_ids)
    ids: list[int] = []
    position = retention.after
    rows = await tx.all("prunable", after=retention.after, limit=retention.limit)
    for row_position, id, queue_id, at, final, published in rows:
        held = message is not None and (published > message or row_position > history)
        if held or at > retention.before:
            return ids, Pruned(len(ids), position, False)
        if final and queue_id in queues:
            if len(ids) == retention.max_messages:
                return ids, Pruned(len(ids), position, True)
            ids.append(id)
        position = row_position
    return ids, Pruned(len(ids), position, len(rows) >= retention.limit)


async def prune(tx: SqlTransaction, retention: Retention) -> Pruned:
    ids, pruned = await find_prunable(tx, retention)
    if ids:
        for table in TABLES:
            await tx.run(f"prune_{table}", ids=tx.encode_ids(ids))
        await tx.run("pruned_up_to", id=max(ids))
    return pruned


async def any_expired(tx: SqlTransaction) -> bool:
    return await any_of(tx, "expired_ready", "expired_scheduled")


async def any_old_keys(tx: SqlTransaction) -> bool:
    return await any_of(tx, "old_dedup", "old_results", "old_documents", "old_acts")


async def any_of(tx: SqlTransaction, *names: str) -> bool:
    """True if one of these statements finds a row."""
    for name in names:
        if await tx.one(name, now=tx.now, limit=1) is not None:
            return True
    return False


async def sweep_keys(tx: SqlTransaction, limit: int) -> int:
    dedups = await tx.all("old_dedup", now=tx.now, limit=limit)
    results = await tx.all("old_results", now=tx.now, limit=limit)
    for queue_id, key in dedups:
        await tx.run("drop_dedup", queue_id=queue_id, key=key, now=tx.now)
    for (id,) in results:
        await tx.run("drop_result", id=id)
    return len(dedups) + len(results) + await documents.sweep(tx, limit)


async def fire(tx: SqlTransaction, firings: Sequence[Firing]) -> list[bool]:
    return [await fire_one(tx, firing) for firing in firings]


async def fire_one(tx: SqlTransaction, firing: Firing) -> bool:
    """Advances the schedule and publishes its messages in one transaction."""
    moved = await tx.run(
        "schedule_move", id=firing.schedule_id, seen_at=firing.seen_at, next_at=firing.next_at
    )
    if not moved:
        return False
    for entry in firing.entries:
        await publish_checked(tx, entry)
    return True


async def dead_counts(tx: SqlTransaction) -> dict[int, int]:
    return dict(await tx.all("dead_counts"))


STALE_EXPORT_MICROS = 86_400_000_000
OVERDUE_MICROS = 60_000_000


async def check_leases(tx: SqlTransaction) -> Check:
    """Overdue leases mean that no reclaimer runs: one reclaims within seconds."""
    overdue = len(await tx.all("lease_expired", now=tx.now - OVERDUE_MICROS, limit=1_000))
    if overdue:
        return Check("leases", f"{overdue} expired over a minute ago; is a worker running?", False)
    return Check("leases", "none overdue")


async def check_exports(tx: SqlTransaction) -> Check:
    rows = await tx.all("cursors")
    stale = [name for name, *_, at in rows if at < tx.now - STALE_EXPORT_MICROS]
    if stale:
        return Check("exports", f"no progress for a day: {', '.join(stale)}", False)
    return Check("exports", "none behind")


async def check_dead(tx: SqlTransaction) -> Check:
    count = sum(number for _, number in await tx.all("dead_counts"))
    return Check("dead letters", f"{count}")
