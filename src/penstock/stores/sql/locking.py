"""Batches of entries where there are other writers: what one of them is about to decide is BUSY."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import groupby

from penstock.errors import Busy
from penstock.stores.sql.publish import lockables, none_of, publish_checked, refused
from penstock.stores.sql.transaction import Lockable, Transaction
from penstock.ticket import Entry, Published

BUSY = Published(0, code=Busy.code)
# Of one message only.
ALONE = ("dedup", "name")


class LockingTransaction(Transaction):
    __slots__ = ()

    @abstractmethod
    async def try_lock(self, what: Sequence[Lockable]) -> list[bool]:
        """Which of these are ours now; nobody is waited for."""

    @abstractmethod
    async def publish_plain(self, entries: Sequence[Entry]) -> list[Published]:
        """Those that need no look at what is stored."""

    @abstractmethod
    async def save(self) -> None:
        """Remembers the place that undo goes back to."""

    @abstractmethod
    async def undo(self) -> None: ...


async def publish_all(tx: LockingTransaction, entries: Sequence[Entry]) -> list[Published]:
    """One step. What somebody else is about to decide is BUSY, and holds up nobody here."""
    kept = await free_ones(tx, entries)
    outcomes = [BUSY] * len(entries)
    for plain, run in groupby(kept, lambda place: entries[place].plain):
        places = list(run)
        asked = [entries[place] for place in places]
        written = await tx.publish_plain(asked) if plain else await publish_each(tx, asked)
        for place, outcome in zip(places, written, strict=True):
            outcomes[place] = outcome
    return outcomes


async def publish_each(tx: Transaction, entries: Sequence[Entry]) -> list[Published]:
    return [await publish_checked(tx, entry) for entry in entries]


async def free_ones(tx: LockingTransaction, entries: Sequence[Entry]) -> list[int]:
    """The places of those whose locks are ours now."""
    asked = [
        (place, what)
        for place, entry in enumerate(entries)
        for what in lockables(entry)
        # A caller may keep its transaction open for long: what others need is not kept from them.
        if not tx.foreign or what[0] in ALONE
    ]
    free = await tx.try_lock([what for _, what in asked]) if asked else []
    taken = {place for (place, _), ours in zip(asked, free, strict=True) if not ours}
    return [place for place in range(len(entries)) if place not in taken]


async def publish_atomic(tx: LockingTransaction, entries: Sequence[Entry]) -> list[Published]:
    if asked := sorted({what for entry in entries for what in lockables(entry)}):
        await tx.lock(*asked)
    await tx.save()
    outcomes = await publish_all(tx, entries)
    if refused(outcomes):
        await tx.undo()
        outcomes = none_of(outcomes)
        tx.woken.clear()
    return outcomes
