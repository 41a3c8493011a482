"""The objects of a topology: as a file declares them, as they are stored, and as they will be."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from penstock.broker.policy import Policy
from penstock.errors import InvalidInput, NotFound
from penstock.model.documents import Document
from penstock.model.message import Moment
from penstock.model.queue import Queue, Schedule
from penstock.model.settings import QueueSettings, change
from penstock.model.topology import NewTopologyQueue, TopologyChange, TopologySchedule
from penstock.rules import validation

Table = Mapping[str, Any]
# Refuses the URL in a field.
CheckUrl = Callable[[str, str], None]
encode = msgspec.json.Encoder().encode


class TopologyItem(Struct, frozen=True):
    """One object: its fields as a file has them, without those that have their default."""

    kind: str
    scope: str
    key: str
    fields: dict[str, Any]

    @property
    def id(self) -> tuple[str, str, str]:
        return self.kind, self.scope, self.key

    def __str__(self) -> str:
        where = "" if self.scope in ("", "default") else f" in scope {self.scope}"
        return f"{self.kind} {self.key}{where}"


class StoredTopology:
    """Everything that is stored, as of one version of the directory."""

    def __init__(
        self,
        tenant: str,
        now: Moment,
        queues: Sequence[Queue],
        schedules: Sequence[Schedule],
        documents: Mapping[str, Mapping[str, Document]],
        policy: Policy,
    ) -> None:
        self.tenant = tenant
        self.now = now
        self.queues = {(queue.scope.name, queue.name): queue for queue in queues}
        self.schedules = {(each.queue_id, each.name): each for each in schedules}
        self.documents = documents
        self.policy = policy
        # Values that kinds compute once.
        self.memo: dict[str, Any] = {}

    def get_document(self, kind: str, name: str) -> Document | None:
        return self.documents.get(kind, {}).get(name)

    def get_schedule(self, item: TopologyItem) -> Schedule | None:
        queue = self.queues.get((item.scope, item.fields["queue"]))
        return None if queue is None else self.schedules.get((queue.id, item.fields["name"]))


class TargetTopology:
    """Everything as it will be: what is stored, and what the file declares."""

    def __init__(self, stored: StoredTopology, items: Iterable[TopologyItem]) -> None:
        self.stored = stored
        self.items = {item.id: item for item in items}
        # Schemas whose new version accepts what the old one accepted.
        self.compatible: set[tuple[str, str]] = set()
        self.scopes = {scope for scope, _ in stored.queues}

    def find_queue(self, scope: str, name: str) -> QueueSettings:
        item = self.items.get(("queue", scope, name))
        if item is not None:
            return make_settings(item)
        queue = self.stored.queues.get((scope, name))
        if queue is None:
            raise NotFound(f"no queue named {validation.clip(name)} in scope {scope!r}")
        return queue.settings

    def check_scope(self, scope: str) -> None:
        if scope not in self.scopes and ("scope", scope, scope) not in self.items:
            raise NotFound(f"no scope named {validation.clip(scope)}; declare it as [[scope]]")


class TopologyBuilder:
    """Collects what one change writes."""

    def __init__(self, target: TargetTopology) -> None:
        self.target = target
        self.stored = target.stored
        self.new_scopes: list[str] = []
        self.new_queues: list[NewTopologyQueue] = []
        self.changed_queues: list[tuple[Queue, QueueSettings]] = []
        self.deleted_queues: list[Queue] = []
        self.schedules: list[TopologySchedule] = []
        self.deleted_schedules: list[Schedule] = []
        self.documents: dict[tuple[str, str], Document] = {}
        self.deleted_documents: list[tuple[str, str]] = []

    def save(self, kind: str, name: str, body: Any) -> None:
        """Saves a document, if it is still the version that was read."""
        before = self.stored.get_document(kind, name)
        version = 0 if before is None else before.version
        self.documents[kind, name] = Document(
            kind=kind, name=name, body=encode(body), version=version
        )

    def build(self, directory_version: int) -> TopologyChange:
        return TopologyChange(
            tenant=self.stored.tenant,
            directory_version=directory_version,
            new_scopes=tuple(self.new_scopes),
            new_queues=tuple(self.new_queues),
            changed_queues=tuple(self.changed_queues),
            deleted_queues=tuple(self.deleted_queues),
            schedules=tuple(self.schedules),
            deleted_schedules=tuple(self.deleted_schedules),
            documents=tuple(self.documents.values()),
            deleted_documents=tuple(self.deleted_documents),
        )


class TopologyKind(Protocol):
    """One kind of object. The table of kinds lists those that exist."""

    # The name of its tables in a file.
    name: str
    # Documents it is read from.
    documents: tuple[str, ...]
    # Fields that operators switch: a file that leaves them out leaves them as they are.
    operated: tuple[str, ...]

    def read(self, table: Table, scope: str) -> TopologyItem:
        """Validates a table by itself."""

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]: ...

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        """Validates what the item refers to, and fills in what depends on it."""

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None: ...

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None: ...


def make_settings(item: TopologyItem) -> QueueSettings:
    fields = {key: value for key, value in item.fields.items() if key != "name"}
    return change(QueueSettings(), fields)


def refuse_unknown(table: Table, known: Iterable[str]) -> None:
    names = list(known)
    for key in table:
        if key not in names:
            near = get_close_matches(key[:100], names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(names)}"
            raise InvalidInput(f"{key[:100]!r} is unknown; {hint}")


def read_name(table: Table, word: str) -> str:
    name = table.get("name")
    if name is None:
        raise InvalidInput("name is missing")
    validation.check_name(word, name)
    return str(name)


def drop_empty(fields: Table) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in ("", False, None)}
