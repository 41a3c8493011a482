"""The broker interface: what apps, workers, servers and commands ask of a broker.

`Broker` implements it on a store, and `RemoteBroker` over HTTP. Callers reach no store through it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias, TypeVar

from msgspec import Struct

from penstock.broker.interfaces.governance import GoverningInterface
from penstock.model.message import Leased
from penstock.model.store_types import Lock

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.artifacts.rules import Artifact
    from penstock.artifacts.service import ArtifactService, Source
    from penstock.artifacts.upload import Content, Upload
    from penstock.broker.interfaces.admin import AdminInterface
    from penstock.broker.interfaces.operations import (
        ActivityInterface,
        AlertsInterface,
        AnomaliesInterface,
        BulkInterface,
        FiltersInterface,
        MetricsInterface,
    )
    from penstock.broker.interfaces.waiting import WaitsInterface
    from penstock.broker.queue_cache import QueueCache
    from penstock.model.message import Draft, Moment, Settlement
    from penstock.model.queue import Queue, QueueState
    from penstock.model.store_types import (
        Answer,
        Completion,
        Entry,
        Extension,
        Lease,
        Mark,
        Published,
        WorkerInfo,
    )
    from penstock.model.workflow import NodeDraft, PreparedWorkflow, WorkflowStart, WorkflowView
    from penstock.outage import Outages
    from penstock.store import Store

T = TypeVar("T")
Held: TypeAlias = Lock | Leased
QueueSelector: TypeAlias = str | tuple[str, Sequence[str]]
Merge: TypeAlias = Literal["rotate", "rank"] | None


AgentFactory: TypeAlias = "Callable[[Store, QueueCache, ArtifactService | None], list[T]]"


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

    async def run_schedule(self, queue: str, name: str, *, scope: str = "default") -> Published:
        """Publishes the message of a schedule now."""
        ...

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

    async def seen(self, queue: str, key: str, *, scope: str = "default") -> int | None:
        """Returns the message of the queue whose completion recorded the key in the last day."""

    async def complete(
        self, held: Held, result: bytes | None = None, *, seen: Sequence[str] = ()
    ) -> Answer:
        """Completes a message, and records keys for `seen` in the same transaction."""

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


class WorkflowsInterface(Protocol):
    """Messages that wait for each other."""

    async def start(
        self,
        name: str,
        nodes: Sequence[NodeDraft],
        *,
        key: str | None = None,
        correlation_id: str | None = None,
        scope: str = "default",
    ) -> WorkflowStart: ...

    async def prepare(
        self,
        name: str,
        nodes: Sequence[NodeDraft],
        *,
        key: str | None = None,
        correlation_id: str | None = None,
        scope: str = "default",
    ) -> PreparedWorkflow:
        """Checks a workflow that starts in the caller's transaction, without writing."""

    def start_on(self, connection: object, prepared: PreparedWorkflow) -> WorkflowStart: ...

    async def astart_on(self, connection: object, prepared: PreparedWorkflow) -> WorkflowStart: ...

    async def get(self, id: str, *, scope: str = "default") -> WorkflowView: ...

    async def cancel(self, id: str, *, scope: str = "default") -> int: ...

    async def redrive(self, id: str, *, scope: str = "default") -> int: ...


class BrokerInterface(
    PublishInterface, ConsumeInterface, WorkersInterface, GoverningInterface, Protocol
):
    """A broker of one tenant."""

    @property
    def tenant(self) -> str: ...

    @property
    def outages(self) -> Outages: ...

    @property
    def admin(self) -> AdminInterface: ...

    @property
    def activity(self) -> ActivityInterface: ...

    @property
    def filters(self) -> FiltersInterface: ...

    @property
    def artifacts(self) -> ArtifactsInterface: ...

    @property
    def bulk(self) -> BulkInterface: ...

    @property
    def metrics(self) -> MetricsInterface: ...

    @property
    def anomalies(self) -> AnomaliesInterface: ...

    @property
    def alerts(self) -> AlertsInterface: ...

    @property
    def workflows(self) -> WorkflowsInterface: ...

    @property
    def waits(self) -> WaitsInterface: ...

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

    def note_lost_lock(self, id: int, fence: int) -> None:
        """Remembers a settle that was refused because another consumer has the message."""

    def forget_queues(self) -> None:
        """Invalidates the cache of queues."""

    def make_agents(self, make: AgentFactory[T]) -> list[T]:
        """Makes agents on the store of this broker, or none if a server runs them."""

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...
