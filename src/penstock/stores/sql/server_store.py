"""Store verbs shared by the SQL servers: concurrent writers, and notices to other processes."""

import asyncio
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from penstock.errors import StoreBusy, StoreUnreachable
from penstock.model.message import Moment, Record
from penstock.model.store_types import (
    Completion,
    Entry,
    Lock,
    Promoted,
    Published,
    Sweep,
    are_plain,
)
from penstock.stores.notifier import NullNotifier, WaitMixin
from penstock.stores.sql import caller_transaction, locking, records, upkeep
from penstock.stores.sql.consume import RETRY_ATTEMPTS, RETRY_DELAY_S, ServerConsume
from penstock.stores.sql.publish import find_uniform
from penstock.stores.sql.store import SqlStore
from penstock.stores.sql.transaction import finish

W = TypeVar("W", bound=NullNotifier)


class ServerStore(ServerConsume, SqlStore, WaitMixin[W]):
    loop: asyncio.AbstractEventLoop

    @abstractmethod
    async def fetch(self, statement: str, /, **values: Any) -> list[Any]: ...

    @abstractmethod
    async def enqueue_plain(self, entries: Sequence[Entry]) -> list[Published]:
        """Publishes plain entries in one step, without reading stored rows."""

    @abstractmethod
    def inside(self, connection: object) -> caller_transaction.Inside:
        """Enters the caller's transaction, or begins one if there is none."""

    @abstractmethod
    async def ainside(self, connection: object) -> caller_transaction.Inside: ...

    @abstractmethod
    async def promote_set(self, limit: int) -> list[int]:
        """Promotes due tickets that need not wait for their key; returns their queues."""

    @abstractmethod
    async def now(self) -> Moment: ...

    # Producers.

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        if not entries:
            return []
        entries = find_uniform(entries)
        if are_plain(entries):
            return await self.enqueue_plain(entries)
        if atomic:
            return await self.write(locking.publish_atomic, entries)
        outcomes = await self.write(locking.publish_all, entries)
        for _ in range(RETRY_ATTEMPTS):
            busy = [place for place, each in enumerate(outcomes) if each is locking.BUSY]
            if not busy:
                break
            await asyncio.sleep(RETRY_DELAY_S)
            again = await self.enqueue_again([entries[place] for place in busy])
            for place, outcome in zip(busy, again, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def enqueue_again(self, entries: Sequence[Entry]) -> list[Published]:
        try:
            return await self.write(locking.publish_all, entries)
        except (StoreBusy, StoreUnreachable):
            # Each locked entry answers for itself; the others may be published.
            return [locking.BUSY] * len(entries)

    def enqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        tell = self.tell_later if wake else None
        return finish(caller_transaction.publish_on(self.inside(connection), entries, tell))

    async def aenqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        tell = self.tell_later if wake else None
        return await caller_transaction.publish_on(await self.ainside(connection), entries, tell)

    def complete_on(self, connection: object, item: Completion) -> None:
        finish(caller_transaction.complete_on(self.inside(connection), item))

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        await caller_transaction.complete_on(await self.ainside(connection), item)

    def in_transaction(self, connection: object) -> bool:
        """Always False: an open transaction on a server blocks no other writer."""
        return False

    # Notices.

    def tell_later(self, queue_ids: set[int]) -> None:
        """Notifies waiters; safe from any thread."""
        self.loop.call_soon_threadsafe(self.waiters.tell, queue_ids)

    async def any_ready(self, queue_ids: Collection[int]) -> bool:
        return bool(await self.fetch("any_ready", queues=list(queue_ids)))

    async def has_ready(self, queue_id: int, types: Sequence[str] = ()) -> bool:
        if not types:
            return await self.any_ready([queue_id])
        for type_ in types:
            if await self.fetch("peek_type", queue_id=queue_id, type=type_):
                return True
        return False

    # Agents and operators.

    async def expired_leases(self, limit: int) -> Sweep:
        rows = await self.fetch("leases_expired", limit=limit)
        if not rows:
            return Sweep(await self.now(), [])
        found = await self.leases([Lock(id, fence) for id, fence, _ in rows])
        return Sweep(rows[0][2], [lease for lease in found if lease is not None])

    async def promote(self, limit: int) -> Promoted:
        ((now, next_at),) = await self.fetch("due_when")
        if next_at is None or next_at > now:
            return Promoted(0, now, next_at)
        queues = await self.promote_set(limit)
        self.waiters.tell(set(queues))
        if len(queues) == limit:
            ((now, next_at),) = await self.fetch("due_when")
            return Promoted(limit, now, next_at)
        rest = await self.write(upkeep.promote, limit - len(queues))
        return Promoted(len(queues) + rest.count, rest.now, rest.next_at)

    async def directory_version(self) -> int:
        """Runs every second, so it is one statement without a transaction."""
        version: int = (await self.fetch("number", name="directory"))[0][0]
        return version

    async def get(self, id: int) -> Record | None:
        return await self.read(records.get, id)
