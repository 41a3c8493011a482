"""Publishes batches beside concurrent writers; entries whose keys are locked answer BUSY."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from penstock.errors import Busy
from penstock.model.store_types import Completion, Entry, Published
from penstock.stores.sql import keys
from penstock.stores.sql.publish import any_refused, list_lockables, publish_checked, refuse_all
from penstock.stores.sql.transaction import Lockable, SqlTransaction

BUSY = Published(0, code=Busy.code)
# Lockables that concern a single message.
ALONE = ("dedup", "name")


class LockingTransaction(SqlTransaction):
    __slots__ = ()

    @abstractmethod
    async def try_lock(self, what: Sequence[Lockable]) -> list[bool]:
        """Tries to lock each without waiting; returns which succeeded."""

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
    async def keys_of_leases(self, items: Sequence[Completion]) -> list[Any]:
        """Returns (id, fence, queue, ordering key) of leases that free a key when they end."""

    @abstractmethod
    async def complete_keyed(self, items: Sequence[Completion]) -> list[Any]:
        """Returns the locks completed. The caller holds the locks of their ordering keys."""


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
    if asked := sorted({what for entry in entries for what in list_lockables(entry)}):
        await tx.lock(*asked)
    await tx.save()
    outcomes = await publish_all(tx, entries)
    if any_refused(outcomes):
        await tx.undo()
        outcomes = refuse_all(outcomes)
        tx.woken.clear()
    return outcomes


async def complete_keyed(
    tx: StoreTransaction, items: Sequence[Completion]
) -> tuple[list[Any], list[Completion]]:
    """Returns the locks completed and the items whose ordering key is in use."""
    lines = {
        (id, fence): None if key is None else keys.make_lockable(queue_id, key)
        for id, fence, queue_id, key in await tx.keys_of_leases(items)
    }
    asked = [line for line in lines.values() if line is not None]
    free = await tx.try_lock(asked) if asked else []
    taken = {line for line, ours in zip(asked, free, strict=True) if not ours}
    held = [item for item in items if (item.id, item.fence) in lines]
    ours = [item for item in held if lines[item.id, item.fence] not in taken]
    busy = [item for item in held if lines[item.id, item.fence] in taken]
    return await tx.complete_keyed(ours) if ours else [], busy
