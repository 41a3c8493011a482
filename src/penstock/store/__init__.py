"""The Store protocol: everything that a database engine implements.

tests/conformance defines it. A store moves tickets and checks fences; it decides no policy. Every
method is one atomic step, answers per item in input order, and uses the store's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from penstock.model.message import NEVER, Moment
from penstock.store.activity import StoreActivity, StoreExport
from penstock.store.waiting import StoreWaiting

if TYPE_CHECKING:
    from penstock.model.changes import Change, Changed, Horizon
    from penstock.model.documents import AuditEntry, Document
    from penstock.model.message import Record, Verb
    from penstock.model.queue import Queue, QueueState, Schedule, Scope
    from penstock.model.search import Scan, ScanPage
    from penstock.model.settings import QueueSettings
    from penstock.model.store_types import (
        AgentRun,
        Answer,
        Claim,
        Claimed,
        Completion,
        Diagnosis,
        Entry,
        Extension,
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
        WorkerInfo,
    )
    from penstock.model.topology import TopologyChange

Clock: TypeAlias = Callable[[], Moment]
# "trusted": the server does not report its durability, and its operator vouches for it.
Durability = Literal["safe", "fast", "trusted"]


class Capabilities(Struct, frozen=True):
    engine: str
    durability: Durability
    max_batch: int = 1_000


class Check(Struct, frozen=True):
    """One finding of `penstock doctor`."""

    name: str
    text: str
    ok: bool = True


class StoreHotPath(Protocol):
    """Methods of producers and consumers."""

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        """Writes the accepted entries in one transaction. `atomic` refuses all if one is."""

    def enqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        """Enqueues in the open transaction of the caller's connection, on the caller's thread."""

    async def aenqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        """Does the same on an async connection."""

    def complete_on(self, connection: object, item: Completion) -> None:
        """Completes the message when the caller commits. Raises LockLost."""

    async def acomplete_on(self, connection: object, item: Completion) -> None: ...

    def in_transaction(self, connection: object) -> bool:
        """True if the caller's connection has an open transaction."""

    async def claim(self, claim: Claim) -> Claimed:
        """Claims ready messages, never expired ones. An empty claim writes nothing."""

    async def claim_dead(self, claim: Claim) -> Claimed:
        """Claims dead letters of the queues, oldest first. Deliveries are not counted."""

    async def complete(self, items: Sequence[Completion]) -> list[Answer]: ...

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        """Extends leases, never shortens one. The answer reports a cancel request."""

    async def mark(self, items: Sequence[Mark]) -> list[Answer]: ...

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        """Returns the lease of each lock, or None where the fence is not the current one."""

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        """Returns why each verb had no effect under that fence."""

    async def settle(self, moves: Sequence[Move]) -> list[Answer]: ...

    async def has_ready(self, queue_id: int, types: Sequence[str] = ()) -> bool:
        """True if the queue has ready messages, of the given types if any. Only a hint."""

    @property
    def wakes(self) -> int:
        """Counts notifications of new work. It only grows."""

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        """Waits until one of the queues may have work. Only a hint.

        Pass `wakes` from before the last claim as `since`, so that no notification is missed.
        Without it, the wait ends at once if a queue has work.
        """


class StoreUpkeep(Protocol):
    """Methods of agents. With nothing to do, each of them only reads."""

    async def now(self) -> Moment: ...

    async def expired_leases(self, limit: int) -> Sweep: ...

    async def promote(self, limit: int) -> Promoted:
        """Makes due messages ready. Keyed ones join the queue of their ordering key."""

    async def expire(self, limit: int) -> int: ...

    async def expire_dead(self, queue_id: int, before: Moment, limit: int) -> int:
        """Ends dead letters that died before this moment as expired."""

    async def age(self, queue_id: int, waited: float, limit: int) -> int:
        """Moves tickets that have been ready for long up to the next existing rank."""

    async def prune(self, retention: Retention) -> Pruned: ...

    async def sweep_keys(self, limit: int) -> int:
        """Deletes expired dedup keys and results."""

    async def fire(self, firings: Sequence[Firing]) -> list[bool]: ...

    async def dead_counts(self) -> dict[int, int]:
        """Returns the number of dead letters by queue id."""

    async def claim_tick(self, agent: str, every: float, by: str) -> bool:
        """Elects one process per `every` seconds. The winner may claim the tick again."""

    async def end_tick(self, agent: str, by: str, result: str) -> None: ...

    async def agent_runs(self) -> list[AgentRun]: ...


class StoreAdmin(Protocol):
    """Methods of operators."""

    async def secret(self) -> bytes:
        """Returns the random secret of this store, with which servers sign."""

    async def directory_version(self) -> int:
        """Returns a number that changes whenever a scope or a queue changes."""

    async def create_scope(self, tenant: str, name: str) -> Scope: ...

    async def scope(self, tenant: str, name: str) -> Scope | None: ...
    async def pause_scope(self, scope_id: int, paused: bool) -> None: ...
    async def create_queue(self, scope_id: int, name: str, settings: QueueSettings) -> Queue: ...
    async def queues(self, tenant: str | None = None, scope: str | None = None) -> list[Queue]: ...

    async def queue(self, tenant: str, scope: str, name: str) -> Queue | None: ...

    async def change_queue(
        self,
        queue_id: int,
        *,
        name: str | None = None,
        state: QueueState | None = None,
        settings: QueueSettings | None = None,
    ) -> None: ...

    async def delete_queue(self, queue_id: int) -> bool:
        """Deletes the queue. Returns False if it has unfinished messages."""

    async def apply(self, change: TopologyChange) -> None:
        """Applies all of the change or nothing.

        Raises TopologyChanged if the directory or a document was changed meanwhile, and
        InvalidState if a queue to delete holds unfinished messages.
        """

    async def get(self, id: int) -> Record | None:
        """Returns a consistent snapshot. Raises Archived if retention removed the message."""

    async def named(self, queue_id: int, name: str) -> int | None: ...

    async def seen(self, queue_id: int, key: str) -> int | None:
        """Returns the message whose completion recorded the key, if one did lately."""

    async def result(self, id: int) -> bytes | None: ...

    async def diagnose(self, id: int, queue_id: int, limit: int = 1_000) -> Diagnosis:
        """Reads what keeps an unfinished message from running. Only a snapshot."""

    async def find(self, query: Query) -> list[Record]: ...

    async def scan(self, scan: Scan) -> ScanPage:
        """Reads a bounded page of a source, without locks. Only a snapshot."""

    async def horizon(self) -> Horizon:
        """Returns the time, the highest message id and the highest history position."""

    async def get_many(self, ids: Sequence[int]) -> list[Record]:
        """Returns messages in the given order, without tracebacks and without those that are
        gone."""

    async def cancel(self, ids: Sequence[int], *, force: bool = False) -> list[Answer]: ...

    async def redrive(self, ids: Sequence[int]) -> list[Answer]:
        """Makes dead messages ready again, with their counters reset."""

    async def purge(self, queue_id: int, places: Collection[str], limit: int) -> int:
        """Ends ready, scheduled or dead messages as cancelled."""

    async def purge_dead(self, ids: Sequence[int]) -> list[Answer]:
        """Ends the given dead letters as cancelled."""

    async def save_schedule(self, schedule: Schedule) -> Schedule: ...

    async def schedules(self, due_by: Moment | None = None) -> list[Schedule]: ...

    async def delete_schedule(self, schedule_id: int) -> bool: ...

    async def save_worker(self, worker: WorkerInfo) -> None:
        """Registers the worker, or renews its registration."""

    async def workers(self) -> list[WorkerInfo]: ...

    async def stop_worker(self, worker_id: str) -> None:
        """Requests the worker to stop. Workers check every second."""

    async def delete_worker(self, worker_id: str) -> None: ...


class StoreRecords(Protocol):
    """Documents of features, and the audit log."""

    async def save_documents(self, given: Sequence[Document]) -> list[bool]:
        """Saves all in one step. Returns False for each one whose stored version differs."""

    async def document(self, kind: str, name: str) -> Document | None:
        """Returns the document, or None if it is missing or expired."""

    async def documents(self, kind: str, after: str = "", limit: int = 1_000) -> list[Document]:
        """Lists documents ordered by name."""

    async def delete_documents(self, kind: str, names: Sequence[str]) -> int: ...

    async def advance(self, change: Change) -> Changed | None:
        """Writes all of the change or nothing. Returns None if a guard was saved meanwhile.

        `acting` is recorded in the same transaction if the change was written.
        """

    async def record(self, acts: Sequence[AuditEntry]) -> None:
        """Writes audit entries of operations that change nothing else. Changes record `acting`."""

    async def acts(
        self, tenant: str | None = None, before: int = NEVER, limit: int = 100
    ) -> list[AuditEntry]:
        """Lists audit entries, newest first. They are kept for a year."""

    async def acts_after(self, after: int, limit: int) -> list[AuditEntry]:
        """Lists audit entries by id. One with a smaller id may still commit later."""


class Store(
    StoreHotPath,
    StoreUpkeep,
    StoreAdmin,
    StoreRecords,
    StoreActivity,
    StoreExport,
    StoreWaiting,
    Protocol,
):
    """The complete store interface."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def examine(self) -> list[Check]:
        """Runs the checks of `penstock doctor`."""

    async def backup(self, path: str) -> None:
        """Writes a consistent copy to a new file while the store is in use."""

    async def close(self) -> None: ...

    async def __aenter__(self) -> Store: ...

    async def __aexit__(self, *error: Any) -> None: ...
