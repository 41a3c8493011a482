"""The store of the SQL engines. Cold verbs run a function of a verb module in a transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeAlias, TypeVar

from penstock.model.message import NEVER
from penstock.stores.notifier import WorkNotifier, wait_for_work
from penstock.stores.sql import documents, export, messages, queues, records, upkeep
from penstock.stores.sql import settle as settling
from penstock.stores.sql.dedup import find_seen
from penstock.stores.sql.dialect import Database, Dialect
from penstock.stores.sql.documents import with_audit
from penstock.stores.sql.leader_election import agent_runs, claim_tick, end_tick
from penstock.stores.sql.results import get_result
from penstock.stores.sql.wait_verbs import WaitVerbs

if TYPE_CHECKING:
    from penstock.model.activity import HeldLease
    from penstock.model.changes import Horizon
    from penstock.model.copies import CopyCursor, StoreDump
    from penstock.model.documents import AuditEntry, Document
    from penstock.model.message import Moment, Record
    from penstock.model.queue import Queue, QueueState, Schedule, Scope
    from penstock.model.search import Scan, ScanPage
    from penstock.model.settings import QueueSettings
    from penstock.model.store_types import (
        AgentRun,
        Answer,
        Cursor,
        Diagnosis,
        Exported,
        Mark,
        PlaceCount,
        Query,
        WorkerInfo,
    )
    from penstock.model.topology import TopologyChange
    from penstock.stores.sql.documents import Work
    from penstock.stores.sql.server_verbs import ServerVerbs
    from penstock.stores.sqlite.verbs import SqliteVerbs

# Verbs that depend on how writers are isolated: many at once, or one.
HotVerbs: TypeAlias = "ServerVerbs | SqliteVerbs"
P = ParamSpec("P")
T = TypeVar("T")
DatabaseT = TypeVar("DatabaseT", bound=Database)
NotifierT = TypeVar("NotifierT", bound=WorkNotifier)
DialectT = TypeVar("DialectT", bound=Dialect)


class SqlStore(Generic[DatabaseT, NotifierT, DialectT]):
    """Implements `penstock.store.Store` over an engine's database, notifier and dialect."""

    def __init__(
        self, database: DatabaseT, notifier: NotifierT, dialect: DialectT, hot: HotVerbs
    ) -> None:
        self.database = database
        self.notifier = notifier
        self.dialect = dialect
        self.hot = hot
        self.capabilities = database.capabilities
        # The engine's own methods, bound here so that a hot call has no frame more.
        self.enqueue = hot.enqueue
        self.enqueue_on = hot.enqueue_on
        self.aenqueue_on = hot.aenqueue_on
        self.complete_on = hot.complete_on
        self.acomplete_on = hot.acomplete_on
        self.save_step_on = hot.save_step_on
        self.asave_step_on = hot.asave_step_on
        self.advance_on = hot.advance_on
        self.aadvance_on = hot.aadvance_on
        self.save_steps = hot.save_steps
        self.steps = hot.steps
        self.signals = hot.signals
        self.headings = hot.headings
        self.in_transaction = hot.in_transaction
        self.complete = hot.complete
        self.extend = hot.extend
        self.leases = hot.leases
        self.explain = hot.explain
        self.settle = hot.settle
        self.has_ready = hot.has_ready
        self.expired_leases = hot.expired_leases
        self.promote = hot.promote
        self.directory_version = hot.directory_version
        self.cancel = hot.cancel
        self.redrive = hot.redrive
        self.purge_dead = hot.purge_dead
        self.advance = hot.advance
        self.bind_waits(WaitVerbs(database, hot))
        self._bind_dialect(dialect)

    def _bind_dialect(self, dialect: DialectT) -> None:
        self.claim = dialect.claim
        self.claim_dead = dialect.claim_dead
        self.now = dialect.now
        self.expire = dialect.expire
        self.fire = dialect.fire
        self.prune = dialect.prune
        self.feed = dialect.feed
        self.heads = dialect.heads
        self.digest = dialect.digest
        self.recent = dialect.recent
        self.past = dialect.past
        self.examine = dialect.examine
        self.restore = dialect.restore
        self.backup = dialect.backup

    def bind_waits(self, waits: WaitVerbs) -> None:
        self.wait = waits.wait
        self.wait_facts = waits.wait_facts
        self.forget_steps = waits.forget_steps
        self.signal = waits.signal
        self.resume_held = waits.resume_held
        self.nudge_missed = waits.nudge_missed
        self.end_held = waits.end_held
        self.holds = waits.holds
        self.edges = waits.edges
        self.child_records = waits.child_records
        self.awaited_results = waits.awaited_results

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.database.close()

    async def close(self) -> None:
        await self.database.close()

    async def change(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a write that may carry an audit entry."""
        return await self.database.write(with_audit(work), *args, **kwargs)

    # Consumers.

    async def mark(self, items: Sequence[Mark]) -> list[Answer]:
        return await self.database.write(settling.mark, items)

    @property
    def wakes(self) -> int:
        return self.notifier.wakes

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        self.database.refuse_closed()
        await wait_for_work(self.notifier, self.hot.any_ready, queue_ids, timeout, since)

    # Agents.

    async def age(self, queue_id: int, waited: float, limit: int) -> int:
        moves = await self.database.read(upkeep.find_aging, queue_id, waited, limit)
        return await self.database.write(upkeep.age, queue_id, moves) if moves else 0

    async def sweep_keys(self, limit: int) -> int:
        if not await self.database.look(upkeep.any_old_keys):
            return 0
        return await self.database.write(upkeep.sweep_keys, limit)

    async def dead_counts(self) -> dict[int, int]:
        return await self.database.read(upkeep.dead_counts)

    async def claim_tick(self, agent: str, every: float, by: str) -> bool:
        return await self.database.write(claim_tick, agent, every, by)

    async def end_tick(self, agent: str, by: str, result: str) -> None:
        await self.database.write(end_tick, agent, by, result)

    async def agent_runs(self) -> list[AgentRun]:
        return await self.database.look(agent_runs)

    # Operators.

    async def secret(self) -> bytes:
        return await self.database.look(queues.secret)

    async def create_scope(self, tenant: str, name: str) -> Scope:
        return await self.change(queues.create_scope, tenant, name)

    async def scope(self, tenant: str, name: str) -> Scope | None:
        return await self.database.look(queues.scope, tenant, name)

    async def pause_scope(self, scope_id: int, paused: bool) -> None:
        await self.change(queues.pause_scope, scope_id, paused)

    async def create_queue(self, scope_id: int, name: str, settings: QueueSettings) -> Queue:
        await self.prepare(settings)
        return await self.change(queues.create_queue, scope_id, name, settings)

    async def queues(self, tenant: str | None = None, scope: str | None = None) -> list[Queue]:
        return await self.database.read(queues.queues, tenant, scope)

    async def queue(self, tenant: str, scope: str, name: str) -> Queue | None:
        return await self.database.look(queues.queue, tenant, scope, name)

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
            await self.dialect.index_types()

    async def delete_queue(self, queue_id: int) -> bool:
        return await self.change(queues.delete_queue, queue_id)

    async def apply(self, change: TopologyChange) -> None:
        for settings in change.settings:
            await self.prepare(settings)
        from penstock.stores.sql import topology

        await self.change(topology.apply, change)

    async def get(self, id: int) -> Record | None:
        return await self.database.look(records.get, id)

    async def named(self, queue_id: int, name: str) -> int | None:
        return await self.database.look(records.find_by_name, queue_id, name)

    async def seen(self, queue_id: int, key: str) -> int | None:
        return await self.database.look(find_seen, queue_id, key)

    async def result(self, id: int) -> bytes | None:
        return await self.database.look(get_result, id)

    async def diagnose(self, id: int, queue_id: int, limit: int = 1_000) -> Diagnosis:
        return await self.database.read(records.diagnose, id, queue_id, limit)

    async def find(self, query: Query) -> list[Record]:
        return await self.database.read(records.find, query)

    async def expire_dead(self, queue_id: int, before: Moment, limit: int) -> int:
        return await self.database.write(messages.expire_dead, queue_id, before, limit)

    async def scan(self, scan: Scan) -> ScanPage:
        from penstock.stores.sql import search

        return await self.database.read(search.scan, scan)

    async def horizon(self) -> Horizon:
        from penstock.stores.sql import search

        return await self.database.read(search.horizon)

    async def get_many(self, ids: Sequence[int]) -> list[Record]:
        return await self.database.read(records.get_many, ids)

    async def purge(self, queue_id: int, places: Collection[str], limit: int) -> int:
        return await self.change(messages.purge, queue_id, places, limit)

    async def save_schedule(self, schedule: Schedule) -> Schedule:
        return await self.change(queues.save_schedule, schedule)

    async def schedules(self, due_by: Moment | None = None) -> list[Schedule]:
        return await self.database.look(queues.schedules, due_by)

    async def delete_schedule(self, schedule_id: int) -> bool:
        return await self.change(queues.delete_schedule, schedule_id)

    async def save_worker(self, worker: WorkerInfo) -> None:
        await self.database.write(queues.save_worker, worker)

    async def workers(self) -> list[WorkerInfo]:
        return await self.database.look(queues.workers)

    async def stop_worker(self, worker_id: str) -> None:
        await self.change(queues.stop_worker, worker_id)

    async def delete_worker(self, worker_id: str) -> None:
        await self.database.write(queues.delete_worker, worker_id)

    # Documents and the audit log.

    async def save_documents(self, given: Sequence[Document]) -> list[bool]:
        return await self.change(documents.save, given) if given else []

    async def document(self, kind: str, name: str) -> Document | None:
        return await self.database.look(documents.get, kind, name)

    async def documents(self, kind: str, after: str = "", limit: int = 1_000) -> list[Document]:
        return await self.database.read(documents.list_documents, kind, after, limit)

    async def delete_documents(self, kind: str, names: Sequence[str]) -> int:
        return await self.change(documents.delete, kind, names)

    async def record(self, acts: Sequence[AuditEntry]) -> None:
        await self.database.write(documents.record, acts)

    async def acts(
        self, tenant: str | None = None, before: int = NEVER, limit: int = 100
    ) -> list[AuditEntry]:
        return await self.database.read(documents.list_audit, tenant, before, limit)

    async def acts_after(self, after: int, limit: int) -> list[AuditEntry]:
        return await self.database.read(documents.list_audit_after, after, limit)

    # Activity.

    async def held(self, after: int, limit: int) -> list[HeldLease]:
        return await self.database.read(records.list_held, after, limit)

    # Export.

    async def frontier(self) -> int:
        return await self.database.read(export.frontier)

    async def census(self) -> list[PlaceCount]:
        return await self.database.read(export.census)

    async def depths(self, ended: int) -> dict[tuple[int, str], int]:
        return await self.database.read(export.depths, ended)

    async def waiting_since(self) -> dict[int, Moment]:
        return await self.database.read(export.waiting_since)

    async def queues_with_keys(self) -> frozenset[int]:
        return await self.database.read(export.queues_with_keys)

    async def save_cursor(self, name: str, cursor: Cursor) -> None:
        await self.database.write(export.save_cursor, name, cursor)

    async def cursors(self) -> dict[str, Exported]:
        return await self.database.look(export.cursors)

    async def count_waits(self) -> int:
        from penstock.stores.sql import copying

        return await self.database.read(copying.count_waits)

    async def dump(self, cursor: CopyCursor, limit: int) -> StoreDump:
        from penstock.stores.sql import copying

        return await self.database.read(copying.dump, cursor, limit)
