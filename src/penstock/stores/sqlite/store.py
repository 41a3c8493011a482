"""The SQLite store: each verb is a function on a transaction; with nothing to do, only a look."""

import asyncio
from collections.abc import Collection, Sequence

from penstock.message import HistoryRow, Moment, Record, Verb
from penstock.queue import Queue, QueueState, Schedule, Scope
from penstock.settings import QueueSettings
from penstock.store import Check
from penstock.stores.sqlite import claim as claiming
from penstock.stores.sqlite import (
    doctor,
    export,
    foreign,
    messages,
    publish,
    registry,
    settle,
    upkeep,
)
from penstock.stores.sqlite.engine import Engine
from penstock.stores.sqlite.transaction import Transaction
from penstock.stores.sqlite.writer import FIRST, LAST, NEXT
from penstock.ticket import (
    AgentRun,
    Answer,
    Claim,
    Claimed,
    Completion,
    Cursor,
    Entry,
    Exported,
    Extension,
    Feed,
    Firing,
    Lease,
    Lock,
    Mark,
    Move,
    Promoted,
    Pruned,
    Published,
    Query,
    Retention,
    Sweep,
    Tally,
    Working,
)


class SqliteStore(Engine):
    # Producers and consumers.

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        if self.files is not None:
            self.files.check_room()
        return await self.write(NEXT, publish.publish, entries, atomic)

    def enqueue_on(self, connection: object, entries: Sequence[Entry]) -> list[Published]:
        outcomes = foreign.publish(connection, self.path, self.clock(), entries)
        if not foreign.in_transaction(connection):
            self.bell.ring()
        return outcomes

    def in_transaction(self, connection: object) -> bool:
        return foreign.in_transaction(connection)

    async def claim(self, claim: Claim) -> Claimed:
        if not self.look(any_ready, claim.queue_ids):
            return claiming.NOTHING
        return await self.write(NEXT, claiming.claim, claim)

    async def claim_dead(self, claim: Claim) -> Claimed:
        if not self.look(any_dead, claim.queue_ids):
            return claiming.NOTHING
        return await self.write(NEXT, claiming.claim_dead, claim)

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        return await self.write(FIRST, settle.complete, items)

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        return await self.write(FIRST, settle.extend, items)

    async def mark(self, items: Sequence[Mark]) -> list[Answer]:
        return await self.write(FIRST, settle.mark, items)

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        return self.look(settle.leases, locks)

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        return self.look(settle.explain_all, locks, verbs)

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        reclaims = any(move.expired_by is not None for move in moves)
        return await self.write(LAST if reclaims else FIRST, settle.settle, moves)

    @property
    def wakes(self) -> int:
        return self.bell.wakes

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        self.refuse_closed()
        heard = self.bell.wait(queue_ids)
        # Looking after listening: what came in between is not missed.
        missed = self.look(any_ready, queue_ids) if since is None else since != self.bell.wakes
        if missed:
            heard.cancel()
            return
        if self.lookout is not None:
            self.lookout.begin()
        longest = min(timeout, self.bell.longest_wait)
        timer = asyncio.get_running_loop().call_later(longest, end_wait, heard)
        try:
            await heard
        finally:
            timer.cancel()

    # Agents.

    async def now(self) -> Moment:
        return self.clock()

    async def expired_leases(self, limit: int) -> Sweep:
        return self.look(settle.expired_leases, limit)

    async def promote(self, limit: int) -> Promoted:
        next_at, now = self.look(upkeep.next_due), self.clock()
        if next_at is None or next_at > now:
            return Promoted(0, now, next_at)
        return await self.write(NEXT, upkeep.promote, limit)

    async def expire(self, limit: int) -> int:
        if not self.look(upkeep.any_expired):
            return 0
        return await self.write(NEXT, upkeep.expire, limit)

    async def age(self, queue_id: int, waited: float, limit: int) -> int:
        if not await self.read(upkeep.aging, queue_id, waited, 1):
            return 0
        return await self.write(NEXT, upkeep.age, queue_id, waited, limit)

    async def prune(self, retention: Retention) -> Pruned:
        ids, pruned = await self.read(upkeep.prunable, retention)
        return await self.write(NEXT, upkeep.prune, retention) if ids else pruned

    async def sweep_keys(self, limit: int) -> int:
        if not self.look(upkeep.any_old_keys):
            return 0
        return await self.write(NEXT, upkeep.sweep_keys, limit)

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self.write(NEXT, upkeep.fire, firings)

    async def dead_counts(self) -> dict[int, int]:
        return await self.read(upkeep.dead_counts)

    async def claim_tick(self, agent: str, every: float, by: str) -> bool:
        return await self.write(NEXT, upkeep.claim_tick, agent, every, by)

    async def end_tick(self, agent: str, by: str, result: str) -> None:
        await self.write(NEXT, upkeep.end_tick, agent, by, result)

    async def agent_runs(self) -> list[AgentRun]:
        return self.look(upkeep.agent_runs)

    # Operators.

    async def directory_version(self) -> int:
        return self.look(registry.directory_version)

    async def create_scope(self, tenant: str, name: str) -> Scope:
        return await self.write(NEXT, registry.create_scope, tenant, name)

    async def scope(self, tenant: str, name: str) -> Scope | None:
        return self.look(registry.scope, tenant, name)

    async def pause_scope(self, scope_id: int, paused: bool) -> None:
        await self.write(NEXT, registry.pause_scope, scope_id, paused)

    async def create_queue(self, scope_id: int, name: str, settings: QueueSettings) -> Queue:
        return await self.write(NEXT, registry.create_queue, scope_id, name, settings)

    async def queues(self, tenant: str | None = None, scope: str | None = None) -> list[Queue]:
        return await self.read(registry.queues, tenant, scope)

    async def queue(self, tenant: str, scope: str, name: str) -> Queue | None:
        return self.look(registry.queue, tenant, scope, name)

    async def change_queue(
        self,
        queue_id: int,
        *,
        name: str | None = None,
        state: QueueState | None = None,
        settings: QueueSettings | None = None,
    ) -> None:
        await self.write(NEXT, registry.change_queue, queue_id, name, state, settings)

    async def delete_queue(self, queue_id: int) -> bool:
        return await self.write(NEXT, registry.delete_queue, queue_id)

    async def get(self, id: int) -> Record | None:
        return self.look(messages.get, id)

    async def named(self, queue_id: int, name: str) -> int | None:
        return self.look(messages.named, queue_id, name)

    async def result(self, id: int) -> bytes | None:
        return self.look(messages.result, id)

    async def find(self, query: Query) -> list[Record]:
        return await self.read(messages.find, query)

    async def cancel(self, ids: Sequence[int], *, force: bool = False) -> list[Answer]:
        return await self.write(FIRST, messages.cancel, ids, force)

    async def redrive(self, ids: Sequence[int]) -> list[Answer]:
        return await self.write(NEXT, messages.redrive, ids)

    async def replace(self, id: int, entry: Entry) -> Published:
        return await self.write(NEXT, messages.replace, id, entry)

    async def purge(self, queue_id: int, places: Collection[str], limit: int) -> int:
        return await self.write(NEXT, messages.purge, queue_id, places, limit)

    async def purge_dead(self, ids: Sequence[int]) -> list[Answer]:
        return await self.write(NEXT, messages.purge_dead, ids)

    async def save_schedule(self, schedule: Schedule) -> Schedule:
        return await self.write(NEXT, registry.save_schedule, schedule)

    async def schedules(self, due_by: Moment | None = None) -> list[Schedule]:
        return self.look(registry.schedules, due_by)

    async def delete_schedule(self, schedule_id: int) -> bool:
        return await self.write(NEXT, registry.delete_schedule, schedule_id)

    async def save_worker(self, worker: Working) -> None:
        await self.write(NEXT, registry.save_worker, worker)

    async def workers(self) -> list[Working]:
        return self.look(registry.workers)

    async def stop_worker(self, worker_id: str) -> None:
        await self.write(NEXT, registry.stop_worker, worker_id)

    async def delete_worker(self, worker_id: str) -> None:
        await self.write(NEXT, registry.delete_worker, worker_id)

    async def examine(self) -> list[Check]:
        return await self.read(doctor.examine, self.files, self.capabilities.durability)

    # Export.

    async def feed(self, cursor: Cursor, limit: int) -> Feed:
        return await self.read(export.feed, cursor, limit)

    async def recent(self, after: int, limit: int) -> list[HistoryRow]:
        return await self.read(export.recent, after, limit)

    async def census(self) -> list[Tally]:
        return await self.read(export.census)

    async def depths(self, ended: int) -> dict[tuple[int, str], int]:
        return await self.read(export.depths, ended)

    async def save_cursor(self, name: str, cursor: Cursor) -> None:
        await self.write(NEXT, export.save_cursor, name, cursor)

    async def cursors(self) -> dict[str, Exported]:
        return self.look(export.cursors)


def any_ready(tx: Transaction, queue_ids: Collection[int]) -> bool:
    return any(tx.one("peek", (queue_id,)) for queue_id in queue_ids)


def any_dead(tx: Transaction, queue_ids: Collection[int]) -> bool:
    return any(tx.one("some_dead", (queue_id, 1)) for queue_id in queue_ids)


def end_wait(heard: "asyncio.Future[None]") -> None:
    if not heard.done():
        heard.set_result(None)
