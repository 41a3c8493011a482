"""The MariaDB store: what it does its own way. Hot verbs are one packet each, or two."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from penstock.errors import StoreBusy, StoreUnreachable
from penstock.message import Record
from penstock.store import Check
from penstock.stores.mariadb import doctor, feed, foreign, publish, type_index
from penstock.stores.mariadb.callers import async_caller_of, caller_of
from penstock.stores.mariadb.consuming import A_LOOK, LOOKS, Consuming
from penstock.stores.mariadb.statement import text_of
from penstock.stores.mariadb.trouble import ERRORS, named
from penstock.stores.sql import locking, messages, records, upkeep
from penstock.stores.sql.publish import plain
from penstock.stores.sql.store import SqlStore
from penstock.stores.sql.transaction import finish
from penstock.stores.waiters import until
from penstock.ticket import (
    Answer,
    Completion,
    Cursor,
    Entry,
    Feed,
    Lock,
    Promoted,
    Pruned,
    Published,
    Retention,
    Sweep,
)

# Nobody tells of the work of other processes: how long a waiter goes without a look.
BLINK = 0.05


class MariaStore(Consuming, SqlStore):
    # Producers and consumers.

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        if not entries:
            return []
        if plain(entries):
            return await self.enqueue_plain(entries)
        if atomic:
            return await self.write(locking.publish_atomic, entries)
        outcomes = await self.write(locking.publish_all, entries)
        for _ in range(LOOKS):
            busy = [place for place, each in enumerate(outcomes) if each is locking.BUSY]
            if not busy:
                break
            await asyncio.sleep(A_LOOK)
            again = await self.enqueue_again([entries[place] for place in busy])
            for place, outcome in zip(busy, again, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def enqueue_again(self, entries: Sequence[Entry]) -> list[Published]:
        try:
            return await self.write(locking.publish_all, entries)
        except (StoreBusy, StoreUnreachable):
            # Not done: they say so for themselves, for the others may be.
            return [locking.BUSY] * len(entries)

    async def enqueue_plain(self, entries: Sequence[Entry]) -> list[Published]:
        if sum(len(entry.body) for entry in entries) > publish.ONE_PACKET:
            return await self.write(publish.publish_chunks, entries)
        outcomes = await self.act(*publish.writing(entries))
        self.waiters.wake({entry.queue_id for entry in entries})
        return publish.published(outcomes[0].first, len(entries))

    def enqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        tell = self.tell_later if wake else None
        return finish(
            foreign.publish_on(caller_of(connection), self.address, self.secret, entries, tell)
        )

    async def aenqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        tell = self.tell_later if wake else None
        caller = await async_caller_of(connection)
        return await foreign.publish_on(caller, self.address, self.secret, entries, tell)

    def complete_on(self, connection: object, item: Completion) -> None:
        finish(foreign.complete_on(caller_of(connection), self.address, self.secret, item))

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        caller = await async_caller_of(connection)
        await foreign.complete_on(caller, self.address, self.secret, item)

    def in_transaction(self, connection: object) -> bool:
        """It would keep nobody waiting."""
        return False

    def tell_later(self, queue_ids: set[int]) -> None:
        """From any thread."""
        self.loop.call_soon_threadsafe(self.waiters.wake, queue_ids)

    @property
    def wakes(self) -> int:
        return self.waiters.wakes

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        self.refuse_closed()
        heard = self.waiters.wait(queue_ids)
        # Looking after listening: what came in between is not missed.
        missed = await self.any_ready(queue_ids) if since is None else since != self.wakes
        if missed:
            heard.cancel()
            return
        await until(heard, min(timeout, BLINK))

    async def any_ready(self, queue_ids: Collection[int]) -> bool:
        return bool(await self.fetch("any_ready", queues=list(queue_ids)))

    # Agents.

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
        picking = [text_of("promote_many", limit=limit)]
        rows, _, _ = await self.hand_out(picking, promoting)
        self.waiters.wake({queue_id for _, queue_id in rows})
        if len(rows) == limit:
            ((now, next_at),) = await self.fetch("due_when")
            return Promoted(limit, now, next_at)
        rest = await self.write(upkeep.promote, limit - len(rows))
        return Promoted(len(rows) + rest.count, rest.now, rest.next_at)

    async def prune(self, retention: Retention) -> Pruned:
        final = await feed.find_final(self)
        ids, pruned = await self.read(feed.prunable, retention, final)
        return await self.write(feed.prune, retention, final) if ids else pruned

    # Operators and export.

    async def directory_version(self) -> int:
        """Asked every second: one statement, not a transaction around it."""
        version: int = (await self.fetch("number", name="directory"))[0][0]
        return version

    async def cancel(self, ids: Sequence[int], *, force: bool = False) -> list[Answer]:
        return [await self.patiently(messages.cancel_one, id, force) for id in ids]

    async def get(self, id: int) -> Record | None:
        return await self.read(records.get, id)

    async def index_types(self) -> None:
        session = await self.address.connect()
        try:
            if not await type_index.there(session):
                await type_index.build(session)
        except ERRORS as error:
            raise named(error, self.where) from error
        finally:
            session.terminate()

    async def examine(self) -> list[Check]:
        return await self.read(doctor.examine, self.address)

    async def feed(self, cursor: Cursor, limit: int) -> Feed:
        final = await feed.find_final(self)
        return await self.read(feed.feed, cursor, limit, final)


def promoting(rows: Sequence[Any]) -> list[str]:
    return [text_of("leave_scheduled", ids=sorted(row[0] for row in rows)), "COMMIT"]
