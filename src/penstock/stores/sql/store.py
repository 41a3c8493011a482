"""Store verbs shared by all SQL stores: each runs a function in a transaction."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ParamSpec, TypeVar

from penstock.model.copies import CopyCursor, StoreDump
from penstock.model.documents import AuditEntry, Document
from penstock.model.message import NEVER, HistoryRow, Moment, Record, Verb
from penstock.model.queue import Queue, QueueState, Schedule, Scope
from penstock.model.settings import QueueSettings
from penstock.model.store_types import (
    AgentRun,
    Answer,
    Cursor,
    Entry,
    Exported,
    Firing,
    Lock,
    Mark,
    Published,
    Query,
    Tally,
    WorkerInfo,
)
from penstock.stores.sql import copying, documents, export, messages, queues, records, upkeep
from penstock.stores.sql import settle as settling
from penstock.stores.sql.documents import Work, with_audit

P = ParamSpec("P")
T = TypeVar("T")


class SqlStore(ABC):
    @abstractmethod
    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs one write transaction, durable when it returns."""

    @abstractmethod
    async def look(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a short read."""

    @abstractmethod
    async def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a read that may be long, on one snapshot."""

    @abstractmethod
    async def index_types(self) -> None:
        """Builds the index for claims by type."""

    async def change(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a write that may carry an audit entry."""
        return await self.write(with_audit(work), *args, **kwargs)

    # Consumers.

    async def mark(self, items: Sequence[Mark]) -> list[Answer]:
        return await self.write(settling.mark, items)

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        return await self.look(settling.explain_all, locks, verbs)

    # Agents.

    async def expire(self, limit: int) -> int:
        if not await self.look(upkeep.any_expired):
            return 0
        return await self.write(upkeep.expire, limit)

    async def age(self, queue_id: int, waited: float, limit: int) -> int:
        if not await self.read(upkeep.find_aging, queue_id, waited, 1):
            return 0
        return await self.write(upkeep.age, queue_id, waited, limit)

    async def sweep_keys(self, limit: int) -> int:
        if not await self.look(upkeep.any_old_keys):
            return 0
        return await self.write(upkeep.sweep_keys, limit)

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self.write(upkeep.fire, firings)

    async def dead_counts(self) -> dict[int, int]:
        return await self.read(upkeep.dead_counts)

    async def claim_tick(self, agent: str, every: float, by: str) -> bool:
        return await self.write(upkeep.claim_tick, agent, every, by)

    async def end_tick(self, agent: str, by: str, result: str) -> None:
        await self.write(upkeep.end_tick, agent, by, result)

    async def agent_runs(self) -> list[AgentRun]:
        return await self.look(upkeep.agent_runs)

    # Operators.

    async def secret(self) -> bytes:
        return await self.look(queues.secret)

    async def directory_version(self) -> int:
        return await self.look(queues.directory_version)

    async def create_scope(self, tenant: str, name: str) -> Scope:
        return await self.change(queues.create_scope, tenant, name)

    async def scope(self, tenant: str, name: str) -> Scope | None:
        return await self.look(queues.scope, tenant, name)

    async def pause_scope(self, scope_id: int, paused: bool) -> None:
        await self.change(queues.pause_scope, scope_id, paused)

    async def create_queue(self, scope_id: int, name: str, settings: QueueSettings) -> Queue:
        await self.prepare(settings)
        return await self.change(queues.create_queue, scope_id, name, settings)

    async def queues(self, tenant: str | None = None, scope: str | None = None) -> list[Queue]:
        return await self.read(queues.queues, tenant, scope)

    async def queue(self, tenant: str, scope: str, name: str) -> Queue | None:
        return await self.look(queues.queue, tenant, scope, name)

    async def change_queue(
        self,
        queue_id: int,
        *,
        name: str | None = None,
        state: QueueState | None = None,
        settings: QueueSettings | None = None,
    ) -> None:
        await self.prepare(settings)
        await self.change(queues.change_queue, queue_id, name, state, settings)

    async def prepare(self, settings: QueueSettings | None) -> None:
        """Builds the indexes that a queue's settings need."""
        if settings is not None and settings.filter_by_type:
            await self.index_types()

    async def delete_queue(self, queue_id: int) -> bool:
        return await self.change(queues.delete_queue, queue_id)

    async def get(self, id: int) -> Record | None:
        return await self.look(records.get, id)

    async def named(self, queue_id: int, name: str) -> int | None:
        return await self.look(records.find_by_name, queue_id, name)

    async def result(self, id: int) -> bytes | None:
        return await self.look(records.get_result, id)

    async def find(self, query: Query) -> list[Record]:
        return await self.read(records.find, query)

    async def cancel(self, ids: Sequence[int], *, force: bool = False) -> list[Answer]:
        return await self.change(messages.cancel, ids, force)

    async def redrive(self, ids: Sequence[int]) -> list[Answer]:
        return await self.change(messages.redrive, ids)

    async def replace(self, id: int, entry: Entry) -> Published:
        return await self.change(messages.replace, id, entry)

    async def purge(self, queue_id: int, places: Collection[str], limit: int) -> int:
        return await self.change(messages.purge, queue_id, places, limit)

    async def purge_dead(self, ids: Sequence[int]) -> list[Answer]:
        return await self.change(messages.purge_dead, ids)

    async def save_schedule(self, schedule: Schedule) -> Schedule:
        return await self.change(queues.save_schedule, schedule)

    async def schedules(self, due_by: Moment | None = None) -> list[Schedule]:
        return await self.look(queues.schedules, due_by)

    async def delete_schedule(self, schedule_id: int) -> bool:
        return await self.change(queues.delete_schedule, schedule_id)

    async def save_worker(self, worker: WorkerInfo) -> None:
        await self.write(queues.save_worker, worker)

    async def workers(self) -> list[WorkerInfo]:
        return await self.look(queues.workers)

    async def stop_worker(self, worker_id: str) -> None:
        await self.change(queues.stop_worker, worker_id)

    async def delete_worker(self, worker_id: str) -> None:
        await self.write(queues.delete_worker, worker_id)

    # Documents and the audit log.

    async def save_documents(self, given: Sequence[Document]) -> list[bool]:
        return await self.change(documents.save, given) if given else []

    async def document(self, kind: str, name: str) -> Document | None:
        return await self.look(documents.get, kind, name)

    async def documents(self, kind: str, after: str = "", limit: int = 1_000) -> list[Document]:
        return await self.read(documents.list_documents, kind, after, limit)

    async def delete_documents(self, kind: str, names: Sequence[str]) -> int:
        return await self.change(documents.delete, kind, names)

    async def record(self, acts: Sequence[AuditEntry]) -> None:
        await self.write(documents.record, acts)

    async def acts(
        self, tenant: str | None = None, before: int = NEVER, limit: int = 100
    ) -> list[AuditEntry]:
        return await self.read(documents.list_audit, tenant, before, limit)

    async def acts_after(self, after: int, limit: int) -> list[AuditEntry]:
        return await self.read(documents.list_audit_after, after, limit)

    # Export.

    async def recent(self, after: int, limit: int) -> list[HistoryRow]:
        return await self.read(export.recent, after, limit)

    async def census(self) -> list[Tally]:
        return await self.read(export.census)

    async def depths(self, ended: int) -> dict[tuple[int, str], int]:
        return await self.read(export.depths, ended)

    async def waiting_since(self) -> dict[int, Moment]:
        return await self.read(export.waiting_since)

    async def save_cursor(self, name: str, cursor: Cursor) -> None:
        await self.write(export.save_cursor, name, cursor)

    async def cursors(self) -> dict[str, Exported]:
        return await self.look(export.cursors)

    async def dump(self, cursor: CopyCursor, limit: int) -> StoreDump:
        return await self.read(copying.dump, cursor, limit)
