"""Publishes entries that depend on stored rows: names, dedup keys, depths, ordering keys.

Beside concurrent writers, entries whose keys are locked answer BUSY.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from penstock.errors import Busy, NameTaken, QueueFull
from penstock.model.message import NEVER, Flag, Moment, State, Verb
from penstock.model.store_types import Completion, Dedupe, Entry, Firing, Published
from penstock.model.uniform_batch import UniformBatch
from penstock.model.units import STALE, Unit, adopt
from penstock.rules.drafts import find_earliest
from penstock.stores.sql import ordering_keys
from penstock.stores.sql.dedup import find_duplicate, remember
from penstock.stores.sql.finalize import finalize
from penstock.stores.sql.holds import hold_published
from penstock.stores.sql.transaction import Lockable, SqlTransaction, Ticket

NOT_PUBLISHED = Published(0, code="NOT_PUBLISHED")
BUSY = Published(0, code=Busy.code)
# Lockables that concern a single message.
ALONE = ("dedup", "name")


def any_refused(outcomes: Sequence[Published]) -> bool:
    return any(outcome.code for outcome in outcomes)


def refuse_all(outcomes: Sequence[Published]) -> list[Published]:
    """Returns the outcomes of an atomic batch of which one entry is refused."""
    return [outcome if outcome.code else NOT_PUBLISHED for outcome in outcomes]


def list_queue_ids(entries: Sequence[Entry]) -> set[int]:
    if isinstance(entries, UniformBatch):
        return {entries.heading.queue_id}
    return {entry.queue_id for entry in entries}


def compute_due_at(entry: Entry, now: Moment) -> Moment:
    if entry.run_at is not None:
        return entry.run_at
    return now + int(entry.delay * 1_000_000) if entry.delay else now


def compute_rank(entry: Entry, now: Moment, due: Moment) -> int:
    match entry.basis:
        case "zero":
            return entry.rank
        case "created":
            return entry.rank + now // 1000
        case "due":
            return entry.rank + max(due, now) // 1000


def compute_expires_at(entry: Entry, now: Moment) -> Moment | None:
    if entry.ttl is None:
        return entry.expires_at
    return find_earliest(entry.expires_at, now + int(entry.ttl * 1_000_000))


def list_lockables(entry: Entry) -> Iterator[Lockable]:
    """Lists the keys to lock while this entry is written."""
    if entry.dedup is not None:
        yield ("dedup", entry.keys_queue_id, entry.dedup.key)
    if entry.name is not None:
        yield ("name", entry.keys_queue_id, entry.name)
    if entry.max_depth is not None:
        yield ("depth", entry.queue_id, "")
    if entry.ordering_key is not None:
        yield ordering_keys.make_lockable(entry.queue_id, entry.ordering_key)
    if entry.unit is not None:
        for copy in entry.unit.copies:
            yield from list_lockables(copy)


async def publish_checked(tx: SqlTransaction, entry: Entry) -> Published:
    """Publishes an entry with a unit, dedup key, name, ordering key, own lease or depth limit."""
    if entry.unit is not None and not await still_stands(tx, entry.unit):
        return Published(0, code=STALE)
    if (seen := await find_duplicate(tx, entry)) is not None:
        return seen
    if entry.name and await tx.one("name_taken", queue_id=entry.keys_queue_id, name=entry.name):
        return Published(0, code=NameTaken.code)
    full = await is_full(tx, entry)
    if full and entry.overflow == "reject":
        return Published(0, code=QueueFull.code)
    id = await write_message(tx, entry)
    await remember(tx, entry, id)
    await place(tx, entry, id, full)
    if entry.unit is not None and entry.unit.copies:
        copies = [replace(copy, meta=adopt(copy.meta, id)) for copy in entry.unit.copies]
        await publish_copies(tx, copies)
    return Published(id)


async def still_stands(tx: SqlTransaction, unit: Unit) -> bool:
    """True if the documents that the entry was made from are stored in those versions."""
    for kind, name, version in unit.expects:
        row = await tx.one("document", kind=kind, name=name, now=tx.now)
        if version != (0 if row is None else row[3]):
            return False
    return True


async def write_message(tx: SqlTransaction, entry: Entry) -> int:
    due = compute_due_at(entry, tx.now)
    row = await tx.one(
        "publish_checked",
        queue_id=entry.queue_id,
        type=entry.type,
        priority=entry.priority,
        rank=compute_rank(entry, tx.now, due),
        created_at=tx.now,
        run_at=due if due > tx.now else None,
        expires_at=compute_expires_at(entry, tx.now),
        body=entry.body,
        meta=entry.meta,
    )
    id: int = row[0]
    return id


async def is_full(tx: SqlTransaction, entry: Entry) -> bool:
    if entry.max_depth is None or (entry.unit is not None and entry.unit.state is not None):
        return False
    row = await tx.one("depth", queue_id=entry.queue_id, most=entry.max_depth)
    depth: int = row[0]
    return depth >= entry.max_depth


async def place(tx: SqlTransaction, entry: Entry, id: int, full: bool) -> None:
    due = compute_due_at(entry, tx.now)
    ticket = ticket_of(entry, id, tx.now)
    if full:
        await end_at_once(tx, ticket, State.DEAD, "overflow")
    elif entry.unit is not None and entry.unit.state is not None:
        await end_at_once(tx, ticket, entry.unit.state, entry.unit.reason)
    elif entry.flags & Flag.HELD:
        # It enters the line of its ordering key when nothing else holds it.
        await tx.put_scheduled(ticket, due if due > tx.now else NEVER)
    elif due > tx.now:
        await tx.put_scheduled(ticket, due, entry.ordering_key)
    elif entry.ordering_key is not None:
        await ordering_keys.get_in_line(tx, ticket, entry.ordering_key, id)
    else:
        await tx.put_ready(ticket)


async def end_at_once(tx: SqlTransaction, ticket: Ticket, state: State, reason: str | None) -> None:
    """Ends a message that is never delivered, as dead or final."""
    ticket = ticket._replace(flags=ticket.flags & ~Flag.HELD)
    if state is State.DEAD:
        await tx.put_dead(ticket, tx.now, reason, None)
    await tx.record(ticket, Verb.PUBLISH, state, reason)
    await finalize(tx, ticket.id, ticket.flags, state, reason)


def ticket_of(entry: Entry, id: int, now: Moment) -> Ticket:
    rank = compute_rank(entry, now, compute_due_at(entry, now))
    ends = compute_expires_at(entry, now) or NEVER
    return Ticket(entry.queue_id, rank, id, entry.type, 0, 0, ends, entry.flags)


class LockingTransaction(SqlTransaction):
    __slots__ = ()

    @abstractmethod
    async def try_lock(self, what: Sequence[Lockable]) -> list[bool]:
        """Tries to lock each without waiting; returns which succeeded."""

    async def try_hold(self, ids: Sequence[int]) -> list[int]:
        free = await self.try_lock([("hold", 0, str(id)) for id in ids]) if ids else []
        return [id for id, ours in zip(ids, free, strict=True) if ours]

    @abstractmethod
    async def publish_plain(self, entries: Sequence[Entry]) -> list[Published]:
        """Publishes entries that depend on no stored row."""

    async def publish_keyed(self, entries: Sequence[Entry]) -> list[Published]:
        """Publishes entries with ordering keys and no other condition."""
        return await publish_each(self, entries)

    @abstractmethod
    async def save(self) -> None:
        """Sets the savepoint that `undo` returns to."""

    @abstractmethod
    async def undo(self) -> None: ...


class StoreTransaction(LockingTransaction):
    """A short transaction of the store's own, which may hold locks of ordering keys."""

    __slots__ = ()

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def lock_lines(self, items: Sequence[Completion]) -> list[Any]:
        """Tries to lock the ordering keys of leases that free a key when they end.

        Returns (id, fence, locked) of these. One that has no line counts as locked.
        """

    @abstractmethod
    async def complete_keyed(self, items: Sequence[Completion]) -> list[Any]:
        """Returns the locks completed. The caller holds the locks of their ordering keys."""

    @abstractmethod
    async def move_schedules(self, firings: Sequence[Firing]) -> list[tuple[int, Moment]]:
        """Advances due schedules that are not locked. Returns their ids and ticks."""

    @abstractmethod
    async def dedups_seen(self, keys: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        """Returns those (queue, dedup key) that stand for a message."""

    @abstractmethod
    async def remember_dedups(
        self, keys: Sequence[tuple[int, str]], ids: Sequence[int], dedups: Sequence[Dedupe]
    ) -> None: ...


async def publish_all(tx: LockingTransaction, entries: Sequence[Entry]) -> list[Published]:
    """Publishes all in one transaction. Entries whose keys are locked answer BUSY alone."""
    kept = await split_plain(tx, entries)
    outcomes = [BUSY] * len(entries)
    for together, run in groupby(kept, lambda place: in_sets(tx, entries[place])):
        places = list(run)
        asked = [entries[place] for place in places]
        written = await (publish_together if together else publish_each)(tx, asked)
        for place, outcome in zip(places, written, strict=True):
            outcomes[place] = outcome
    return outcomes


def in_sets(tx: LockingTransaction, entry: Entry) -> bool:
    """True if a set can write the entry. A caller's transaction locks no ordering keys."""
    return entry.plain if tx.foreign else not entry.conditional


async def publish_together(tx: LockingTransaction, entries: Sequence[Entry]) -> list[Published]:
    plain = all(entry.plain for entry in entries)
    return await (tx.publish_plain if plain else tx.publish_keyed)(entries)


async def publish_each(tx: SqlTransaction, entries: Sequence[Entry]) -> list[Published]:
    return [await publish_checked(tx, entry) for entry in entries]


async def publish_copies(tx: SqlTransaction, entries: Sequence[Entry]) -> None:
    """Publishes the copies of an entry; plain ones as sets where the engine has a statement."""
    for plain, run in groupby(entries, attrgetter("plain")):
        copies = list(run)
        if plain and isinstance(tx, LockingTransaction):
            await tx.publish_plain(copies)
            continue
        outcomes = await publish_each(tx, copies)
        if any(copy.after for copy in copies):
            await hold_published(tx, copies, outcomes)


async def split_plain(tx: LockingTransaction, entries: Sequence[Entry]) -> list[int]:
    """Returns the indexes of the entries whose locks were acquired."""
    asked = [
        (place, what)
        for place, entry in enumerate(entries)
        for what in list_lockables(entry)
        # A caller's transaction may stay open for long, so it must not hold locks others need.
        if not tx.foreign or what[0] in ALONE
    ]
    free = await tx.try_lock([what for _, what in asked]) if asked else []
    taken = {place for (place, _), ours in zip(asked, free, strict=True) if not ours}
    return [place for place in range(len(entries)) if place not in taken]


async def publish_atomic(tx: LockingTransaction, entries: Sequence[Entry]) -> list[Published]:
    await lock_keys(tx, entries)
    await tx.save()
    outcomes = await publish_all(tx, entries)
    if any_refused(outcomes):
        await tx.undo()
        outcomes = refuse_all(outcomes)
        tx.woken.clear()
    return outcomes


async def publish_locked(tx: LockingTransaction, entries: Sequence[Entry]) -> list[Published]:
    """Publishes as part of a larger transaction, which its caller undoes if one is refused."""
    await lock_keys(tx, entries)
    return await publish_all(tx, entries)


async def lock_keys(tx: LockingTransaction, entries: Sequence[Entry]) -> None:
    if asked := sorted({what for entry in entries for what in list_lockables(entry)}):
        await tx.lock(*asked)


async def complete_keyed(
    tx: StoreTransaction, items: Sequence[Completion]
) -> tuple[list[Any], list[Completion]]:
    """Returns the locks completed and the items whose ordering key is in use."""
    locked = {(id, fence): bool(ours) for id, fence, ours in await tx.lock_lines(items)}
    held = [item for item in items if (item.id, item.fence) in locked]
    ours = [item for item in held if locked[item.id, item.fence]]
    busy = [item for item in held if not locked[item.id, item.fence]]
    return await tx.complete_keyed(ours) if ours else [], busy
