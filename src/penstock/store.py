"""The door to durable state. One conformance suite, tests/conformance, is its definition.

A store moves tickets and checks fences; it decides no policy. Every verb is one atomic step,
answers per item in input order, and takes its moments from the store's own clock.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from penstock.model.documents import AuditEntry, Document
from penstock.model.message import NEVER, HistoryRow, Moment, Record, Verb
from penstock.model.queue import Queue, QueueState, Schedule, Scope
from penstock.model.settings import QueueSettings
from penstock.model.store_types import (
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
    WorkerInfo,
)

Clock: TypeAlias = Callable[[], Moment]
# Trusted: the server does not say how it keeps what it confirms; its owner does.
Durability = Literal["safe", "fast", "trusted"]


class Capabilities(Struct, frozen=True):
    engine: str
    durability: Durability
    max_batch: int = 1_000


class Check(Struct, frozen=True):
    """One thing the doctor looked at."""

    name: str
    text: str
    well: bool = True


class StoreHotPath(Protocol):
    """What producers and consumers do."""

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        """All accepted entries are durable, or none is. `atomic` refuses all if one is refused."""

    def enqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        """In the open transaction of a caller's own connection, on the caller's own thread."""

    async def aenqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        """The same for a connection that is waited for."""

    def complete_on(self, connection: object, item: Completion) -> None:
        """Completed if and when the caller commits. Raises LockLost."""

    async def acomplete_on(self, connection: object, item: Completion) -> None: ...

    def in_transaction(self, connection: object) -> bool:
        """A caller's own connection has one open."""

    async def claim(self, claim: Claim) -> Claimed:
        """Never hands out an expired message; an empty claim writes nothing."""

    async def claim_dead(self, claim: Claim) -> Claimed:
        """Dead letters of the queues, the longest dead first. Deliveries stay as they are."""

    async def complete(self, items: Sequence[Completion]) -> list[Answer]: ...

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        """Never shortens a lease; the answer tells of a cancel request."""

    async def mark(self, items: Sequence[Mark]) -> list[Answer]: ...

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        """What a rule needs to settle each; None where the fence is not the current one."""

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        """Why each verb found nothing to do under that fence."""

    async def settle(self, moves: Sequence[Move]) -> list[Answer]: ...

    async def has_ready(self, queue_id: int, types: Sequence[str] = ()) -> bool:
        """There is work in that queue, of one of these types if any is named. Only a hint."""

    @property
    def wakes(self) -> int:
        """How often this store was told of work; only ever grows."""

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        """Returns early when one of the queues may have work. Only a hint.

        `since` is `wakes` as it was before the last claim: what came after it is not missed.
        Without it, a queue that has work ends the wait at once.
        """


class StoreUpkeep(Protocol):
    """What agents do. With nothing to do, every verb only reads."""

    async def now(self) -> Moment: ...

    async def expired_leases(self, limit: int) -> Sweep: ...

    async def promote(self, limit: int) -> Promoted:
        """Due messages become ready; keyed ones get in line, and each free key moves on."""

    async def expire(self, limit: int) -> int: ...

    async def age(self, queue_id: int, waited: float, limit: int) -> int:
        """The longest-waiting tickets move up to the next rank that exists."""

    async def prune(self, retention: Retention) -> Pruned: ...

    async def sweep_keys(self, limit: int) -> int:
        """Drops dedup keys and results whose time is over."""

    async def fire(self, firings: Sequence[Firing]) -> list[bool]: ...

    async def dead_counts(self) -> dict[int, int]:
        """Dead letters by queue id."""

    async def claim_tick(self, agent: str, every: float, by: str) -> bool:
        """True for one `by` in `every` seconds; whoever has the tick may go on with it."""

    async def end_tick(self, agent: str, by: str, result: str) -> None: ...

    async def agent_runs(self) -> list[AgentRun]: ...


class StoreAdmin(Protocol):
    """What operators do."""

    async def secret(self) -> bytes:
        """Of this store alone: what servers on it sign with."""

    async def directory_version(self) -> int:
        """Changes whenever a scope or a queue does."""

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
        """False, and nothing is done, while it holds unfinished messages."""

    async def get(self, id: int) -> Record | None:
        """One snapshot. Raises Archived when retention took it."""

    async def named(self, queue_id: int, name: str) -> int | None: ...

    async def result(self, id: int) -> bytes | None: ...

    async def find(self, query: Query) -> list[Record]: ...

    async def cancel(self, ids: Sequence[int], *, force: bool = False) -> list[Answer]: ...

    async def redrive(self, ids: Sequence[int]) -> list[Answer]:
        """Dead ones become ready again in place, with counters at 0."""

    async def replace(self, id: int, entry: Entry) -> Published:
        """Ends a dead message as cancelled and publishes another in its stead."""

    async def purge(self, queue_id: int, places: Collection[str], limit: int) -> int:
        """Ends ready, scheduled or dead messages as cancelled."""

    async def purge_dead(self, ids: Sequence[int]) -> list[Answer]:
        """Ends these dead letters as cancelled."""

    async def save_schedule(self, schedule: Schedule) -> Schedule: ...

    async def schedules(self, due_by: Moment | None = None) -> list[Schedule]: ...

    async def delete_schedule(self, schedule_id: int) -> bool: ...

    async def save_worker(self, worker: WorkerInfo) -> None:
        """It is there, and seen now."""

    async def workers(self) -> list[WorkerInfo]: ...

    async def stop_worker(self, worker_id: str) -> None:
        """Asks it to stop; it looks every second."""

    async def delete_worker(self, worker_id: str) -> None: ...


class StoreRecords(Protocol):
    """What features keep beside the queues, and who did what."""

    async def save_documents(self, given: Sequence[Document]) -> list[bool]:
        """One step. False, and that one is left alone, where another version is stored."""

    async def document(self, kind: str, name: str) -> Document | None:
        """One that has expired is not there."""

    async def documents(self, kind: str, after: str = "", limit: int = 1_000) -> list[Document]:
        """In order of their names."""

    async def delete_documents(self, kind: str, names: Sequence[str]) -> int: ...

    async def record(self, acts: Sequence[AuditEntry]) -> None:
        """Writes down what changed nothing: what `acting` says is recorded by what it changes."""

    async def acts(
        self, tenant: str | None = None, before: int = NEVER, limit: int = 100
    ) -> list[AuditEntry]:
        """The newest first; those of a year are kept."""


class StoreExport(Protocol):
    """The two readers of history, and the count of everything."""

    async def feed(self, cursor: Cursor, limit: int, known: Cursor | None = None) -> Feed:
        """Final and gap-free; may lag behind somebody's open transaction, further than before too.

        What was final once is so for ever: up to `known`, nothing is asked again.
        """

    async def recent(self, after: int, limit: int) -> list[HistoryRow]:
        """May repeat, may be late: for live views only."""

    async def census(self) -> list[Tally]:
        """One snapshot of how many messages are where; on Redis if nothing moves meanwhile."""

    async def depths(self, ended: int) -> dict[tuple[int, str], int]:
        """By queue id and place, for people; the ended by state, and only the last `ended`."""

    async def waiting_since(self) -> dict[int, Moment]:
        """By queue id, since when the message that is next in line could be claimed."""

    async def save_cursor(self, name: str, cursor: Cursor) -> None: ...

    async def cursors(self) -> dict[str, Exported]: ...


class Store(StoreHotPath, StoreUpkeep, StoreAdmin, StoreRecords, StoreExport, Protocol):
    """All of it."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def examine(self) -> list[Check]:
        """What an operator should know of this store, and what needs attention."""

    async def backup(self, path: str) -> None:
        """A consistent copy in a new file, while the store is in use."""

    async def close(self) -> None: ...

    async def __aenter__(self) -> "Store": ...

    async def __aexit__(self, *error: Any) -> None: ...
