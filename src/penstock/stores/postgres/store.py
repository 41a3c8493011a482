"""The PostgreSQL store: what it does its own way. Hot verbs are one statement each."""

import asyncio
from collections.abc import Collection, Sequence

from penstock.errors import StoreBusy, StoreUnreachable
from penstock.message import HistoryRow, Moment, Record
from penstock.store import Check
from penstock.stores.postgres import doctor, feed, foreign, publish, type_index
from penstock.stores.postgres.callers import async_caller_of, caller_of
from penstock.stores.postgres.consuming import A_LOOK, LOOKS, Consuming
from penstock.stores.sql import messages, records, upkeep
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


class PostgresStore(Consuming, SqlStore):
    # Producers and consumers.

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        if not entries:
            return []
        if plain(entries):
            name, values = publish.call(entries)
            outcomes = publish.published(await self.fetch(name, **values))
            self.waiters.tell({entry.queue_id for entry in entries})
            return outcomes
        if atomic:
            return await self.write(publish.publish_atomic, entries)
        outcomes = await self.write(publish.publish_all, entries)
        for _ in range(LOOKS):
            busy = [place for place, each in enumerate(outcomes) if each is publish.BUSY]
            if not busy:
                break
            await asyncio.sleep(A_LOOK)
            again = await self.enqueue_again([entries[place] for place in busy])
            for place, outcome in zip(busy, again, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def enqueue_again(self, entries: Sequence[Entry]) -> list[Published]:
        try:
            return await self.write(publish.publish_all, entries)
        except (StoreBusy, StoreUnreachable):
            # Not done: they say so for themselves, for the others may be.
            return [publish.BUSY] * len(entries)

    def enqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        tell = self.tell_later if wake else None
        return finish(foreign.publish_on(caller_of(connection), self.secret, entries, tell))

    async def aenqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        tell = self.tell_later if wake else None
        caller = await async_caller_of(connection)
        return await foreign.publish_on(caller, self.secret, entries, tell)

    def complete_on(self, connection: object, item: Completion) -> None:
        finish(foreign.complete_on(caller_of(connection), self.secret, item))

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        await foreign.complete_on(await async_caller_of(connection), self.secret, item)

    def in_transaction(self, connection: object) -> bool:
        """It would keep nobody waiting."""
        return False

    def tell_later(self, queue_ids: set[int]) -> None:
        """From any thread."""
        self.loop.call_soon_threadsafe(self.waiters.tell, queue_ids)

    @property
    def wakes(self) -> int:
        return self.waiters.wakes

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        self.refuse_closed()
        self.waiters.listen()
        heard = self.waiters.wait(queue_ids)
        # Looking after listening: what came in between is not missed.
        missed = await self.any_ready(queue_ids) if since is None else since != self.wakes
        if missed:
            heard.cancel()
            return
        await until(heard, min(timeout, self.waiters.longest_wait))

    async def any_ready(self, queue_ids: Collection[int]) -> bool:
        return bool(await self.fetch("any_ready", queues=list(queue_ids)))

    # Agents.

    async def now(self) -> Moment:
        moment: Moment = (await self.fetch("moment"))[0][0]
        return moment

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
        rows = await self.fetch("promote_many", limit=limit)
        self.waiters.tell({queue_id for (queue_id,) in rows})
        if len(rows) == limit:
            ((now, next_at),) = await self.fetch("due_when")
            return Promoted(limit, now, next_at)
        rest = await self.write(upkeep.promote, limit - len(rows))
        return Promoted(len(rows) + rest.count, rest.now, rest.next_at)

    async def expire(self, limit: int) -> int:
        """Sets first; what has keys to free is left to the look at each."""
        ended = 0
        for name in ("expire_ready", "expire_scheduled"):
            if ended < limit:
                ended += (await self.fetch(name, limit=limit - ended, queues=None))[0][0]
        return ended + (await super().expire(limit - ended) if ended < limit else 0)

    async def prune(self, retention: Retention) -> Pruned:
        ids, pruned = await self.read(feed.prunable, retention)
        return await self.write(feed.prune, retention) if ids else pruned

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
        await type_index.build(self.address)

    async def examine(self) -> list[Check]:
        return await self.read(doctor.examine, self.address)

    async def feed(self, cursor: Cursor, limit: int) -> Feed:
        return await self.read(feed.feed, cursor, limit)

    async def recent(self, after: int, limit: int) -> list[HistoryRow]:
        return await self.read(feed.recent, after, limit)
