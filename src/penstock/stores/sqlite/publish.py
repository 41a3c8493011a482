"""Writes entries. Those that need no look at what is stored go in as sets."""

from collections.abc import Callable, Sequence
from itertools import chain, groupby

from penstock.message import Moment
from penstock.stores.sql.publish import (
    alike,
    due_at,
    expires_at,
    none_of,
    plain,
    publish_checked,
    rank_at,
    refused,
)
from penstock.stores.sqlite.transaction import SQL, Transaction
from penstock.ticket import Entry, Published

ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Few distinct statements, so that SQLite keeps them all prepared.
CHUNKS = (256, 64, 16, 4, 1)
BODY = 7


def inserts(row: Callable[[int], str]) -> dict[int, str]:
    return {
        size: SQL["publish_message"].replace(ROW, ", ".join(row(number) for number in range(size)))
        for size in CHUNKS
    }


INSERTS = inserts(lambda number: ROW)
INSERTS_ALIKE = inserts(lambda number: f"(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?{9 + number}, ?8)")


async def publish(
    tx: Transaction, entries: Sequence[Entry], atomic: bool = False
) -> list[Published]:
    if not atomic:
        return await publish_each(tx, entries)
    tx.db.execute("SAVEPOINT atomic")
    outcomes = await publish_each(tx, entries)
    if refused(outcomes):
        tx.db.execute("ROLLBACK TO atomic")
        outcomes = none_of(outcomes)
    tx.db.execute("RELEASE atomic")
    return outcomes


async def publish_each(tx: Transaction, entries: Sequence[Entry]) -> list[Published]:
    """Neighbours that need no look at what is stored go in together."""
    if plain(entries):
        return publish_plain(tx, entries)
    outcomes: list[Published] = []
    for together, run in groupby(entries, is_plain):
        if together:
            outcomes += publish_plain(tx, list(run))
        else:
            outcomes += [await publish_checked(tx, entry) for entry in run]
    return outcomes


def is_plain(entry: Entry) -> bool:
    return entry.plain


def publish_plain(tx: Transaction, entries: Sequence[Entry]) -> list[Published]:
    last = insert_alike(tx, entries) if alike(entries) else insert_each(tx, entries)
    first = last - len(entries) + 1
    span = {"first": first, "last": last, "now": tx.now, "flags": 0}
    tx.execute("publish_ready", span)
    if any(entry.delay or entry.run_at for entry in entries):
        tx.execute("publish_scheduled", span)
    tx.woken.update({entry.queue_id for entry in entries})
    return [Published(id) for id in range(first, last + 1)]


def insert_alike(tx: Transaction, entries: Sequence[Entry]) -> int:
    """Binding values is most of the cost: what all share is bound once. The last id."""
    row = row_of(entries[0], tx.now)
    shared = [*row[:BODY], *row[BODY + 1 :]]
    start = last = 0
    for size in CHUNKS:
        while len(entries) - start >= size:
            bodies = [entry.body for entry in entries[start : start + size]]
            last = tx.db.execute(INSERTS_ALIKE[size], shared + bodies).lastrowid or 0
            start += size
    return last


def insert_each(tx: Transaction, entries: Sequence[Entry]) -> int:
    """The last id; the others are the numbers before it."""
    rows = [row_of(entry, tx.now) for entry in entries]
    start = last = 0
    for size in CHUNKS:
        while len(rows) - start >= size:
            values = list(chain.from_iterable(rows[start : start + size]))
            last = tx.db.execute(INSERTS[size], values).lastrowid or 0
            start += size
    return last


def row_of(entry: Entry, now: Moment) -> tuple[object, ...]:
    due = due_at(entry, now)
    return (
        entry.queue_id, entry.type, entry.priority, rank_at(entry, now, due), now,
        due if due > now else None, expires_at(entry, now), entry.body, entry.meta,
    )  # fmt: skip
