"""The PostgreSQL store: what it does its own way. Hot verbs are one statement each."""

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from penstock.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnreachable
from penstock.message import Moment, Record, Verb
from penstock.store import Check
from penstock.stores.postgres import claim as claiming
from penstock.stores.postgres import doctor, feed, foreign, publish, settle, type_index
from penstock.stores.postgres.callers import async_caller_of, caller_of
from penstock.stores.postgres.engine import BEGIN_BRIEFLY, Engine, P, Work
from penstock.stores.postgres.lines import Line, Place
from penstock.stores.postgres.statement import CLAIMS
from penstock.stores.sql import messages, records, upkeep
from penstock.stores.sql import settle as settling
from penstock.stores.sql.settle import BUSY
from penstock.stores.sql.store import SqlStore
from penstock.stores.sql.transaction import finish
from penstock.stores.waiters import until
from penstock.ticket import (
    DONE,
    Answer,
    AnswerKind,
    Claim,
    Claimed,
    Completion,
    Cursor,
    Entry,
    Extension,
    Feed,
    Lease,
    Lock,
    Move,
    Promoted,
    Pruned,
    Published,
    Retention,
    Sweep,
)

Locked = TypeVar("Locked", Completion, Extension)
# Somebody's look at a row, unlike their open transaction, is over soon.
LOOKS, A_LOOK = 3, 0.01


class PostgresStore(Engine, SqlStore):
    # Producers and consumers.

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        if not entries:
            return []
        if all(entry.plain for entry in entries):
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

    async def claim(self, claim: Claim) -> Claimed:
        way = claiming.pick(claim)
        rows = await self.pick_one(claim) if way == "pick_one" else await self.pick(way, claim)
        if not rows or rows[-1][0] is not None:
            return Claimed(claiming.leased(rows))
        rows.pop()
        if rows:
            # They are ours already, whatever becomes of the others.
            with suppress(StoreError):
                await self.clear(claim.queue_ids)
            return Claimed(claiming.leased(rows))
        return Claimed([], again=await self.clear(claim.queue_ids))

    async def pick(self, way: str, claim: Claim, after: Place | None = None) -> list[Any]:
        values = claiming.terms(claim)
        if after is not None:
            values |= {"rank": after.rank, "id": after.id}
        return await self.ask(CLAIMS[way], values)

    async def pick_one(self, claim: Claim) -> list[Any]:
        """From the head of one queue, or from where its line is known to begin."""
        line = self.lines.setdefault(claim.queue_ids[0], Line())
        heard, started = self.waiters.heard_of(claim.queue_ids[0]), time.monotonic()
        after = line.begins(started, heard)
        if after is not None:
            rows = await self.pick("pick_after", claim, after)
            line.went_on(claiming.last_place(rows))
            return rows
        rows = await self.pick("pick_one", claim)
        last = claiming.last_place(rows)
        line.took(started, time.monotonic(), heard, len(rows), last)
        return rows

    async def clear(self, queue_ids: Sequence[int]) -> bool:
        """Ends what expired in line. What has keys to free is looked at one by one."""
        most = self.capabilities.max_batch
        ((ended,),) = await self.fetch("expire_ready", queues=list(queue_ids), limit=most)
        return bool(ended or await self.write(claiming.clear, queue_ids, most))

    async def claim_dead(self, claim: Claim) -> Claimed:
        rows = await self.fetch("claim_dead", **claiming.terms(claim))
        return Claimed(claiming.leased(rows))

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        rows = await self.complete_free(items)
        if len(rows) == len(items):
            return [DONE] * len(rows)
        answers = settle.done(items, rows)
        return [
            answer or await self.patiently(settling.complete_one, item)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def complete_free(self, items: Sequence[Completion]) -> list[Any]:
        """As one set; without those that somebody's transaction holds, if one does."""
        name, values = settle.completion(items)
        try:
            return await self.fetch(name, **values)
        except StoreBusy:
            free = await self.free_among(items)
        if not free:
            return []
        name, values = settle.completion(free)
        return await self.fetch(name, **values)

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        try:
            rows = await self.fetch("extend_many", **settle.extension(items))
        except StoreBusy:
            free = await self.free_among(items)
            rows = await self.fetch("extend_many", **settle.extension(free)) if free else []
        answers = settle.prolonged(items, rows)
        return [
            answer or await self.patiently(settling.why_not, item.id, item.fence)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def free_among(self, items: Sequence[Locked]) -> list[Locked]:
        locks = {"ids": [item.id for item in items], "fences": [item.fence for item in items]}
        free = {tuple(row) for row in await self.fetch("free_leases", **locks)}
        return [item for item in items if (item.id, item.fence) in free]

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        ids, fences = [lock.id for lock in locks], [lock.fence for lock in locks]
        rows = await self.fetch("leases", ids=ids, fences=fences)
        found = {(row[0], row[1]): settling.lease_of(row[:-1], row[-1]) for row in rows}
        return [found.get((lock.id, lock.fence)) for lock in locks]

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        return await self.write(settling.explain_all, locks, verbs)

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        together = [move for move in moves if settle.as_set(move)]
        rows = await self.fetch("settle_many", **settle.moving(together)) if together else []
        self.waiters.tell({queue_id for _, queue_id, state in rows if state == "ready"})
        answers = settle.moved(moves, rows)
        return [
            answer or await self.patiently(settling.settle_one, move)
            for move, answer in zip(moves, answers, strict=True)
        ]

    async def patiently(self, work: Work[P, Answer], *args: P.args, **kwargs: P.kwargs) -> Answer:
        """BUSY only if it is for longer than a look. Others of the same call may be done already:
        that this one is not must not be said of them."""
        try:
            for _ in range(LOOKS):
                answer = await self.write_by(BEGIN_BRIEFLY, work, *args, **kwargs)
                if answer.kind is not AnswerKind.BUSY:
                    return answer
                await asyncio.sleep(A_LOOK)
        except StoreBusy:
            return BUSY
        except StoreUnreachable as error:
            raise OutcomeUnknown(str(error)) from error
        return BUSY

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
        ids, pruned = await self.read(upkeep.prunable, retention)
        return await self.write(upkeep.prune, retention) if ids else pruned

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
