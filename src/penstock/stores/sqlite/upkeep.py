"""What the agents do: promote, expire, age, prune, fire schedules, claim ticks."""

import json
from collections.abc import Sequence
from itertools import pairwise

from penstock.message import Flag, State, Verb
from penstock.stores.sqlite import keys
from penstock.stores.sqlite.claim import end
from penstock.stores.sqlite.publish import publish_each
from penstock.stores.sqlite.transaction import Ticket, Transaction
from penstock.ticket import AgentRun, Firing, Promoted, Pruned, Retention

EXPORT_HOLD = 30 * 86_400_000_000
MOST_LEVELS = 64


def promote(tx: Transaction, limit: int) -> Promoted:
    rows = tx.all("due", (tx.now, limit))
    for *ticket, key in rows:
        promote_one(tx, Ticket(*ticket), key)
    return Promoted(len(rows), tx.now, next_due(tx))


def promote_one(tx: Transaction, ticket: Ticket, key: str | None) -> None:
    waits = ticket.flags & Flag.KEYED and tx.one("is_head", (ticket.id,)) is None
    if waits and key is not None:
        tx.run("get_in_line", (ticket.id,))
        keys.advance(tx, ticket.queue_id, key)
        return
    tx.one("take_scheduled", (ticket.id,))
    tx.put_ready(ticket)


def next_due(tx: Transaction) -> int | None:
    row = tx.one("next_due")
    return row[0] if row else None


def expire(tx: Transaction, limit: int) -> int:
    rows = tx.all("expired_ready", (tx.now, limit))
    ended = sum(expire_one(tx, tx.one("take_ready", row)) for row in rows)
    left = limit - ended
    waiting = tx.all("expired_scheduled", (tx.now, left)) if left else []
    return ended + sum(expire_one(tx, tx.one("take_scheduled", row)) for row in waiting)


def expire_one(tx: Transaction, row: Sequence[object] | None) -> bool:
    # Ending one may have promoted the next of its key meanwhile.
    if row is None:
        return False
    end(tx, Ticket._make(row), Verb.EXPIRE, State.EXPIRED)
    return True


def age(tx: Transaction, queue_id: int, waited: float, limit: int) -> int:
    moves = aging(tx, queue_id, waited, limit)
    tx.run_many("age", [(above, queue_id, rank, id) for id, rank, above in moves])
    return len(moves)


def aging(tx: Transaction, queue_id: int, waited: float, limit: int) -> list[tuple[int, int, int]]:
    """The longest-waiting tickets with a level above them: (id, rank, rank above)."""
    before = tx.now - int(waited * 1_000_000)
    ranks = levels(tx, queue_id)
    found = [
        (id, rank, above)
        for above, rank in pairwise(ranks)
        for id, rank in tx.all("waited", (queue_id, rank, before, limit))
    ]
    return sorted(found)[:limit]


def levels(tx: Transaction, queue_id: int) -> list[int]:
    ranks: list[int] = []
    row = tx.one("next_rank", (queue_id, -(2**62)))
    while row is not None and len(ranks) < MOST_LEVELS:
        ranks.append(row[0])
        row = tx.one("next_rank", (queue_id, row[0]))
    return ranks


def prunable(tx: Transaction, retention: Retention) -> tuple[list[int], Pruned]:
    """Which messages may go, looking at one stretch of history."""
    message, history = tx.one("held_by_cursors", (tx.now - EXPORT_HOLD,))
    queues = frozenset(retention.queue_ids)
    ids: list[int] = []
    position = retention.after
    rows = tx.all("prunable", (retention.after, retention.limit))
    for row_position, id, queue_id, at, final in rows:
        held = message is not None and (id > message or row_position > history)
        if held or at > retention.before:
            return ids, Pruned(len(ids), position, False)
        if final and queue_id in queues:
            ids.append(id)
        position = row_position
    return ids, Pruned(len(ids), position, len(rows) == retention.limit)


def prune(tx: Transaction, retention: Retention) -> Pruned:
    ids, pruned = prunable(tx, retention)
    if ids:
        text = json.dumps(ids)
        tx.run("prune_history", {"ids": text})
        for table in ("prune_message", "prune_name", "prune_result"):
            tx.run(table, (text,))
        tx.run("pruned_up_to", (max(ids),))
        tx.db.execute("PRAGMA incremental_vacuum(1000)").fetchall()
    return pruned


def any_expired(tx: Transaction) -> bool:
    return any(tx.one(name, (tx.now, 1)) for name in ("expired_ready", "expired_scheduled"))


def any_old_keys(tx: Transaction) -> bool:
    return any(tx.one(name, (tx.now, 1)) for name in ("old_dedup", "old_results"))


def sweep_keys(tx: Transaction, limit: int) -> int:
    dedups = tx.all("old_dedup", (tx.now, limit))
    results = tx.all("old_results", (tx.now, limit))
    tx.run_many("drop_dedup", dedups)
    tx.run_many("drop_result", results)
    return len(dedups) + len(results)


def fire(tx: Transaction, firings: Sequence[Firing]) -> list[bool]:
    return [fire_one(tx, firing) for firing in firings]


def fire_one(tx: Transaction, firing: Firing) -> bool:
    """The schedule moves on and its messages are published together, or neither."""
    moved = {"id": firing.schedule_id, "seen": firing.seen_at, "next": firing.next_at}
    if not tx.run("schedule_move", moved).rowcount:
        return False
    publish_each(tx, firing.entries)
    return True


def claim_tick(tx: Transaction, agent: str, every: float, by: str) -> bool:
    tick = {"name": agent, "now": tx.now, "by": by, "every": int(every * 1_000_000)}
    return tx.run("claim_tick", tick).rowcount > 0


def end_tick(tx: Transaction, agent: str, by: str, result: str) -> None:
    tx.run("end_tick", (result, agent, by))


def agent_runs(tx: Transaction) -> list[AgentRun]:
    return [AgentRun(*row) for row in tx.all("agent_runs")]


def dead_counts(tx: Transaction) -> dict[int, int]:
    return dict(tx.all("dead_counts"))
