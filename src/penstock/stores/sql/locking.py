"""Batches of entries where there are other writers: what one of them is about to decide is BUSY."""

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
# Of one message only.
ALONE = ("dedup", "name")


class LockingTransaction(SqlTransaction):
    __slots__ = ()

    @abstractmethod
    async def try_lock(self, what: Sequence[Lockable]) -> list[bool]:
        """Which of these are ours now; nobody is waited for."""

    @abstractmethod
    async def publish_plain(self, entries: Sequence[Entry]) -> list[Published]:
        """Those that need no look at what is stored."""

    async def publish_keyed(self, entries: Sequence[Entry]) -> list[Published]:
        """Those that are not conditional."""
        return await publish_each(self, entries)

    @abstractmethod
    async def save(self) -> None:
        """Remembers the place that undo goes back to."""

    @abstractmethod
    async def undo(self) -> None: ...


class StoreTransaction(LockingTransaction):
    """One of the store's own, which is short: it may hold the locks of ordering keys."""

    __slots__ = ()

    @abstractmethod
    async def keys_of_leases(self, items: Sequence[Completion]) -> list[Any]:
        """(id, fence, queue, ordering key) of those that have keys to free when they end."""

    @abstractmethod
    async def complete_keyed(self, items: Sequence[Completion]) -> list[Any]:
        """The locks of those that were. The locks of their ordering keys are held."""


async def publish_all(tx: LockingTransaction, entries: Sequence[Entry]) -> list[Published]:
    """One step. What somebody else is about to decide is BUSY, and holds up nobody here."""
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
    """In a foreign transaction the lock of an ordering key is not held."""
    return entry.plain if tx.foreign else not entry.conditional


async def publish_together(tx: LockingTransaction, entries: Sequence[Entry]) -> list[Published]:
    plain = all(entry.plain for entry in entries)
    return await (tx.publish_plain if plain else tx.publish_keyed)(entries)


async def publish_each(tx: SqlTransaction, entries: Sequence[Entry]) -> list[Published]:
    return [await publish_checked(tx, entry) for entry in entries]


async def split_plain(tx: LockingTransaction, entries: Sequence[Entry]) -> list[int]:
    """The places of those whose locks are ours now."""
    asked = [
        (place, what)
        for place, entry in enumerate(entries)
        for what in list_lockables(entry)
        # A caller may keep its transaction open for long: what others need is not kept from them.
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
    """The locks of those that were completed, and the items whose ordering key is in use."""
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
