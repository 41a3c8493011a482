"""Publishes entries; plain ones as sets."""

from collections.abc import Callable, Sequence
from itertools import chain, groupby

from penstock.model.message import Flag, Moment
from penstock.model.store_types import Entry, Published
from penstock.model.uniform_batch import UniformBatch, are_plain, find_uniform
from penstock.rules.waiting import mark_awaited
from penstock.stores.sql.holds import hold_published
from penstock.stores.sql.publish import (
    any_refused,
    compute_due_at,
    compute_expires_at,
    compute_rank,
    publish_checked,
    refuse_all,
)
from penstock.stores.sqlite.transaction import SQL, SqliteTransaction

ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Few distinct sizes, so that all statements stay in the statement cache.
CHUNKS = (500, 100, 20, 4, 1)
BODY = 7
# Entries with other flags have keys or holds, which are written one by one.
SET_FLAGS = (0, Flag.AWAITED)


def make_insert_statements(row: Callable[[int], str]) -> dict[int, str]:
    return {
        size: SQL["publish_message"].replace(ROW, ", ".join(row(number) for number in range(size)))
        for size in CHUNKS
    }


INSERTS = make_insert_statements(lambda number: ROW)
INSERTS_UNIFORM = make_insert_statements(
    lambda number: f"(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?{9 + number}, ?8)"
)


def count_body_bytes(entries: Sequence[Entry]) -> int:
    if isinstance(entries, UniformBatch):
        return sum(map(len, entries.bodies))
    copies = (entry.unit.copies for entry in entries if entry.unit is not None)
    return sum(len(entry.body) for entry in entries) + sum(map(count_body_bytes, copies))


async def publish(
    tx: SqliteTransaction, entries: Sequence[Entry], atomic: bool = False
) -> list[Published]:
    return await (publish_atomic if atomic else publish_each)(tx, entries)


async def publish_atomic(tx: SqliteTransaction, entries: Sequence[Entry]) -> list[Published]:
    tx.db.execute("SAVEPOINT atomic")
    outcomes = await publish_holding(tx, entries)
    if any_refused(outcomes):
        tx.db.execute("ROLLBACK TO atomic")
        outcomes = refuse_all(outcomes)
    tx.db.execute("RELEASE atomic")
    return outcomes


async def publish_holding(tx: SqliteTransaction, entries: Sequence[Entry]) -> list[Published]:
    """Publishes in order, with the holds of entries that wait for others."""
    if isinstance(entries, UniformBatch):
        return await publish_each(tx, entries)
    afters = [entry.after for entry in entries if entry.after is not None]
    if not afters:
        return await publish_each(tx, entries)
    entries = mark_awaited(entries, afters)
    outcomes = await publish_each(tx, entries)
    if not any_refused(outcomes):
        await hold_published(tx, entries, outcomes)
    return outcomes


async def publish_each(tx: SqliteTransaction, entries: Sequence[Entry]) -> list[Published]:
    """Publishes in order; adjacent plain entries go into one set, and so do awaited ones."""
    entries = find_uniform(entries)
    if are_plain(entries):
        return publish_plain(tx, entries)
    outcomes: list[Published] = []
    for flags, run in groupby(entries, find_set):
        if flags is not None:
            outcomes += publish_plain(tx, find_uniform(list(run)), flags)
        else:
            outcomes += [await publish_checked(tx, entry) for entry in run]
    return outcomes


def find_set(entry: Entry) -> int | None:
    """Returns the flags that the entry shares with its set, or None if it is written alone."""
    return entry.flags if entry.flags in SET_FLAGS and not entry.conditional else None


def publish_plain(
    tx: SqliteTransaction, entries: Sequence[Entry], flags: int = 0
) -> list[Published]:
    if isinstance(entries, UniformBatch):
        return publish_uniform(tx, entries, flags)
    last = insert_each(tx, entries)
    first = last - len(entries) + 1
    span = {"first": first, "last": last, "now": tx.now, "flags": flags}
    tx.execute("publish_ready", span)
    if any(entry.delay or entry.run_at for entry in entries):
        tx.execute("publish_scheduled", span)
    tx.woken.update(entry.queue_id for entry in entries)
    return list(map(Published, range(first, last + 1)))


def publish_uniform(tx: SqliteTransaction, batch: UniformBatch, flags: int) -> list[Published]:
    row = make_row(batch.heading, tx.now)
    last = insert_uniform(tx, row, batch.bodies)
    first = last - len(batch) + 1
    queue_id, kind, _, rank, now, run_at, expires_at, _, _ = row
    span = {"first": first, "last": last, "flags": flags}
    if run_at is None:
        ticket = {"queue_id": queue_id, "rank": rank, "type": kind, "expires_at": expires_at}
        tx.execute("publish_ready_uniform", span | ticket)
    else:
        tx.execute("publish_scheduled", span | {"now": now})
    tx.woken.add(batch.heading.queue_id)
    return list(map(Published, range(first, last + 1)))


def insert_uniform(tx: SqliteTransaction, row: tuple[object, ...], bodies: list[bytes]) -> int:
    """Binds shared values once, since binding is most of the cost. Returns the last id."""
    shared = [*row[:BODY], *row[BODY + 1 :]]
    start = last = 0
    for size in CHUNKS:
        while len(bodies) - start >= size:
            values = shared + bodies[start : start + size]
            last = tx.db.execute(INSERTS_UNIFORM[size], values).lastrowid or 0
            start += size
    return last


def insert_each(tx: SqliteTransaction, entries: Sequence[Entry]) -> int:
    """Returns the last id; the others are the numbers before it."""
    rows = [make_row(entry, tx.now) for entry in entries]
    start = last = 0
    for size in CHUNKS:
        while len(rows) - start >= size:
            values = list(chain.from_iterable(rows[start : start + size]))
            last = tx.db.execute(INSERTS[size], values).lastrowid or 0
            start += size
    return last


def make_row(entry: Entry, now: Moment) -> tuple[object, ...]:
    due = compute_due_at(entry, now)
    return (
        entry.queue_id, entry.type, entry.priority, compute_rank(entry, now, due), now,
        due if due > now else None, compute_expires_at(entry, now), entry.body, entry.meta,
    )  # fmt: skip
