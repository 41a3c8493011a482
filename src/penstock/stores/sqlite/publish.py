"""Writes entries: message rows, their tickets, names and dedup keys."""

from collections.abc import Callable, Sequence
from itertools import chain, groupby
from operator import attrgetter

from penstock.admission import earliest
from penstock.errors import IdempotencyConflict, NameTaken, QueueFull
from penstock.message import NEVER, Moment, State, Verb
from penstock.stores.sqlite import keys
from penstock.stores.sqlite.transaction import SQL, Ticket, Transaction
from penstock.ticket import Entry, Published

NOT_PUBLISHED = Published(0, code="NOT_PUBLISHED")
ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Few distinct statements, so that SQLite keeps them all prepared.
CHUNKS = (256, 64, 16, 4, 1)
BODY = 7
# All that a plain entry can say, but for its body.
HEADING = attrgetter(
    "queue_id", "type", "priority", "rank", "basis", "delay", "run_at", "ttl", "expires_at", "meta"
)


def inserts(row: Callable[[int], str]) -> dict[int, str]:
    return {
        size: SQL["publish_message"].replace(ROW, ", ".join(row(number) for number in range(size)))
        for size in CHUNKS
    }


INSERTS = inserts(lambda number: ROW)
INSERTS_ALIKE = inserts(lambda number: f"(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?{9 + number}, ?8)")


def publish(tx: Transaction, entries: Sequence[Entry], atomic: bool = False) -> list[Published]:
    if not atomic:
        return publish_each(tx, entries)
    tx.db.execute("SAVEPOINT atomic")
    outcomes = publish_each(tx, entries)
    if any(outcome.code for outcome in outcomes):
        tx.db.execute("ROLLBACK TO atomic")
        outcomes = [outcome if outcome.code else NOT_PUBLISHED for outcome in outcomes]
    tx.db.execute("RELEASE atomic")
    return outcomes


def publish_each(tx: Transaction, entries: Sequence[Entry]) -> list[Published]:
    """Neighbours that need no look at what is stored go in together."""
    outcomes: list[Published] = []
    for plain, run in groupby(entries, is_plain):
        if plain:
            outcomes += publish_plain(tx, list(run))
        else:
            outcomes += [publish_checked(tx, entry) for entry in run]
    return outcomes


def is_plain(entry: Entry) -> bool:
    return entry.plain


def publish_plain(tx: Transaction, entries: list[Entry]) -> list[Published]:
    last = insert_alike(tx, entries) if alike(entries) else insert_each(tx, entries)
    first = last - len(entries) + 1
    span = {"first": first, "last": last, "now": tx.now, "flags": 0}
    tx.run("publish_ready", span)
    if any(entry.delay or entry.run_at for entry in entries):
        tx.run("publish_scheduled", span)
    tx.woken.update({entry.queue_id for entry in entries})
    return [Published(id) for id in range(first, last + 1)]


def alike(entries: list[Entry]) -> bool:
    """They differ in nothing but their bodies."""
    return len(set(map(HEADING, entries))) == 1


def insert_alike(tx: Transaction, entries: list[Entry]) -> int:
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


def insert_each(tx: Transaction, entries: list[Entry]) -> int:
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


def due_at(entry: Entry, now: Moment) -> Moment:
    if entry.run_at is not None:
        return entry.run_at
    return now + int(entry.delay * 1_000_000) if entry.delay else now


def rank_at(entry: Entry, now: Moment, due: Moment) -> int:
    match entry.basis:
        case "zero":
            return entry.rank
        case "created":
            return entry.rank + now // 1000
        case "due":
            return entry.rank + max(due, now) // 1000


def expires_at(entry: Entry, now: Moment) -> Moment | None:
    if entry.ttl is None:
        return entry.expires_at
    return earliest(entry.expires_at, now + int(entry.ttl * 1_000_000))


def publish_checked(tx: Transaction, entry: Entry) -> Published:
    """With a dedup key, a name, an ordering key, a lease of its own or a limited depth."""
    if (seen := seen_before(tx, entry)) is not None:
        return seen
    if entry.name and tx.one("name_taken", (entry.queue_id, entry.name)):
        return Published(0, code=NameTaken.code)
    full = is_full(tx, entry)
    if full and entry.overflow == "reject":
        return Published(0, code=QueueFull.code)
    id = tx.run("publish_message", row_of(entry, tx.now)).lastrowid or 0
    remember(tx, entry, id)
    place(tx, entry, id, full)
    return Published(id)


def seen_before(tx: Transaction, entry: Entry) -> Published | None:
    if entry.dedup is None:
        return None
    seen = tx.one("dedup_seen", (entry.queue_id, entry.dedup.key, tx.now))
    if seen is None:
        return None
    id, digest = seen
    if digest != entry.dedup.digest:
        return Published(0, code=IdempotencyConflict.code)
    return Published(id, duplicate=True)


def is_full(tx: Transaction, entry: Entry) -> bool:
    if entry.max_depth is None:
        return False
    depth: int = tx.one("depth", {"queue": entry.queue_id, "most": entry.max_depth})[0]
    return depth >= entry.max_depth


def remember(tx: Transaction, entry: Entry, id: int) -> None:
    if entry.name is not None:
        tx.run("name_take", (entry.queue_id, entry.name, id))
    if (dedup := entry.dedup) is not None:
        until = NEVER if dedup.window is None else tx.now + int(dedup.window * 1_000_000)
        tx.run("dedup_remember", (entry.queue_id, dedup.key, id, dedup.digest, until))


def place(tx: Transaction, entry: Entry, id: int, full: bool) -> None:
    due = due_at(entry, tx.now)
    ticket = Ticket(
        entry.queue_id,
        rank_at(entry, tx.now, due),
        id,
        entry.type,
        0,
        0,
        expires_at(entry, tx.now) or NEVER,
        entry.flags,
    )
    if full:
        tx.put_dead(ticket, tx.now, "overflow", None)
        tx.record(ticket, Verb.PUBLISH, State.DEAD, "overflow")
        keys.free(tx, id, ticket.flags)
    elif due > tx.now:
        tx.put_scheduled(ticket, due, entry.ordering_key)
    elif entry.ordering_key is not None:
        keys.get_in_line(tx, ticket, entry.ordering_key, id)
    else:
        tx.put_ready(ticket)
