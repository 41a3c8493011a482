"""The broker interface: what apps, workers, servers and commands ask of a broker.

`Broker` implements it on a store, and `RemoteBroker` over HTTP. Callers reach no store through it.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar

from msgspec import Struct

from penstock.artifacts.room import ArtifactRoom, Source
from penstock.artifacts.rules import Artifact
from penstock.artifacts.upload import Content, Upload
from penstock.broker.queue_cache import QueueCache
from penstock.broker.search import SearchResult
from penstock.errors import PenstockError
from penstock.model.message import Draft, Leased, Moment, Record, Settlement, State
from penstock.model.queue import Queue, QueueState, Schedule, Scope
from penstock.model.store_types import (
    Answer,
    Completion,
    Entry,
    Extension,
    Lease,
    Lock,
    Mark,
    Pruned,
    Published,
    WorkerInfo,
)
from penstock.outage import Outages
from penstock.rules.explain import Cause
from penstock.store import Store

T = TypeVar("T")
Held: TypeAlias = Lock | Leased
QueueSelector: TypeAlias = str | tuple[str, Sequence[str]]
Merge: TypeAlias = Literal["rotate", "rank"] | None


AgentFactory: TypeAlias = Callable[[Store, QueueCache, ArtifactRoom | None], list[T]]


class ClaimResult(Struct, frozen=True):
    """The claimed messages, and the state of each requested queue."""

    messages: list[Leased]
    queues: dict[str, QueueState]


class PublishInterface(Protocol):
    """Verbs of producers. Those that end in `_on` write in the caller's transaction."""

    async def publish(self, draft: Draft, *, scope: str = "default") -> Published: ...

    async def publish_many(
        self, drafts: Sequence[Draft], *, atomic: bool = False, scope: str = "default"
    ) -> list[Published]: ...

    async def admit(self, draft: Draft, *, scope: str = "default") -> Entry: ...

    def publish_on(
        self, connection: object, draft: Draft, entry: Entry, *, wake: bool = True
    ) -> Published: ...

    async def apublish_on(
        self, connection: object, draft: Draft, entry: Entry, *, wake: bool = True
    ) -> Published: ...

    def in_transaction(self, connection: object) -> bool:
        """True if an open transaction of the connection blocks other writers."""


class ConsumeInterface(Protocol):
    """Verbs of consumers."""

    async def claim(
        self,
        *selectors: QueueSelector,
        consumer: str,
        limit: int = 1,
        lease: float | None = None,
        wait: float = 0.0,
        begins: bool = False,
        merge: Merge = None,
        scope: str = "default",
    ) -> ClaimResult: ...

    async def complete(self, held: Held, result: bytes | None = None) -> Answer: ...

    async def complete_many(self, items: Sequence[Completion]) -> list[Answer]: ...

    async def complete_claimed(self, items: Sequence[Completion]) -> list[Answer]:
        """Completes messages that this broker claimed, without validating their locks."""

    async def settle(self, held: Held, settlement: Settlement) -> Answer: ...

    async def settle_many(self, items: Sequence[tuple[Held, Settlement]]) -> list[Answer]: ...

    async def extend(self, held: Held, lease: float) -> Answer: ...

    async def extend_many(self, items: Sequence[Extension]) -> list[Answer]: ...

    async def begin(self, held: Held) -> Answer: ...

    async def progress(
        self, held: Held, percent: float | None = None, note: str | None = None
    ) -> Answer: ...

    async def mark_many(self, marks: Sequence[Mark]) -> list[Answer]:
        """Records that runs began, or their progress."""

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        """Returns the lease of each lock, or None where the fence is not the current one."""

    async def explain_completions(self, locks: Sequence[Lock]) -> list[Answer]:
        """Returns the answer that a complete would get. CHANGED means that the lock is held."""

    def complete_on(self, connection: object, item: Completion) -> None: ...

    async def acomplete_on(self, connection: object, item: Completion) -> None: ...

    @property
    def wakes(self) -> int:
        """Counts notifications of new work. It only grows."""

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        """Waits until one of the queues may have work. Only a hint."""


class AdminInterface(Protocol):
    """Administration of scopes, queues, schedules and messages."""

    async def create_scope(self, name: str) -> Scope: ...

    async def pause_scope(self, name: str, *, paused: bool = True) -> None: ...

    async def create_queue(
        self,
        /,
        name: str,
        *,
        preset_name: str = "default",
        scope: str = "default",
        **settings: Any,
    ) -> Queue: ...

    async def queue(self, name: str, *, scope: str = "default") -> Queue: ...

    async def queues(self, *, scope: str = "default") -> list[Queue]: ...

    async def set_queue(
        self, /, name: str, *, scope: str = "default", **settings: Any
    ) -> Queue: ...

    async def set_state(self, name: str, state: QueueState, *, scope: str = "default") -> Queue: ...

    async def rename_queue(self, name: str, new_name: str, *, scope: str = "default") -> Queue: ...

    async def delete_queue(
        self, name: str, *, force: bool = False, scope: str = "default"
    ) -> None: ...

    async def schedule(self, schedule: Schedule, *, scope: str = "default") -> Schedule: ...

    async def schedules(self, *, scope: str = "default") -> list[Schedule]: ...

    async def unschedule(self, queue: str, name: str, *, scope: str = "default") -> None: ...

    async def get(self, reference: int | str, *, scope: str = "default") -> Record: ...

    async def result(self, reference: int | str, *, scope: str = "default") -> bytes | None: ...

    async def callbacks(self, reference: int | str, *, scope: str = "default") -> list[Record]: ...

    async def explain(self, reference: int | str, *, scope: str = "default") -> list[Cause]: ...

    async def find(
        self,
        queue: str | None = None,
        *,
        state: State | None = None,
        type: str | None = None,
        correlation_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
        scope: str = "default",
    ) -> list[Record]: ...

    async def search(
        self,
        filter: str,
        *,
        cursor: str | None = None,
        limit: int = 50,
        scope: str = "default",
    ) -> SearchResult: ...

    async def cancel(
        self, reference: int | str, *, force: bool = False, scope: str = "default"
    ) -> Answer: ...

    async def redrive(
        self, reference: int | str, *, body: bytes | None = None, scope: str = "default"
    ) -> Published: ...

    async def redrive_many(self, ids: Sequence[int]) -> list[Answer | PenstockError]: ...

    async def purge(
        self, name: str, *places: str, limit: int = 1_000, scope: str = "default"
    ) -> int: ...

    async def prune(
        self,
        name: str,
        *,
        before: Moment | None = None,
        limit: int = 1_000,
        scope: str = "default",
    ) -> Pruned: ...

    async def purge_dead(self, reference: int | str, *, scope: str = "default") -> Answer: ...


class ArtifactsInterface(Protocol):
    """Files attached to messages."""

    async def attach(self, held: Held, name: str, content: Source) -> Artifact: ...

    def spool(self, name: str, content: Content) -> Upload: ...

    async def attach_uploads(self, held: Held, uploads: Sequence[Upload]) -> None: ...

    async def list_artifacts(
        self, reference: int | str, *, scope: str = "default"
    ) -> list[Artifact]: ...

    async def read(self, reference: int | str, name: str, *, scope: str = "default") -> bytes: ...

    async def download(
        self, reference: int | str, name: str, to: Path, *, scope: str = "default"
    ) -> None: ...


class WorkersInterface(Protocol):
    """The registrations of worker processes."""

    async def workers(self) -> list[WorkerInfo]: ...

    async def save_worker(self, worker: WorkerInfo) -> None: ...

    async def stop_worker(self, worker_id: str) -> None: ...

    async def delete_worker(self, worker_id: str) -> None: ...


class BrokerInterface(PublishInterface, ConsumeInterface, WorkersInterface, Protocol):
    """A broker of one tenant."""

    @property
    def tenant(self) -> str: ...

    @property
    def outages(self) -> Outages: ...

    @property
    def admin(self) -> AdminInterface: ...

    @property
    def artifacts(self) -> ArtifactsInterface: ...

    async def now(self) -> Moment: ...

    async def read_result(self, id: int) -> bytes | None:
        """Returns the result of a message. `admin.result` also checks whose it is."""

    async def depths(self, ended: int = 0) -> dict[tuple[int, str], int]:
        """Counts messages by queue id and place. Of finished ones, only the last `ended` count."""

    def find_queue(self, name: str, *, scope: str = "default") -> Queue | None:
        """Returns the queue if it is cached."""

    async def get_queue(self, name: str, *, scope: str = "default") -> Queue:
        """Returns the queue as it was at most a second ago."""

    def find_queue_by_id(self, queue_id: int) -> Queue | None:
        """Returns the queue as it was last seen."""

    async def get_queue_by_id(self, queue_id: int) -> Queue: ...

    def forget_queues(self) -> None:
        """Invalidates the cache of queues."""

    def make_agents(self, make: AgentFactory[T]) -> list[T]:
        """Makes agents on the store of this broker, or none if a server runs them."""

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...
