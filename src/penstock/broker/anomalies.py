"""Lists anomalies, and records those that only a running process notices."""

from collections import Counter
from collections.abc import Collection, Iterable
from copy import copy
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from penstock.broker.metrics.queries import Allows
from penstock.broker.metrics.rows import (
    ANOMALY,
    MAX_ANOMALIES_PER_KIND,
    RECORDED,
    decode_row,
    make_row_document,
    name_anomaly,
    name_count,
    read_newest_rows,
)
from penstock.broker.queue_cache import QueueCache
from penstock.errors import Busy, InvalidInput
from penstock.model.anomalies import (
    SEVERITIES,
    Anomaly,
    AnomalyReport,
    AnomalyRow,
    AnomalyState,
    refuse_unknown_kinds,
)
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.model.metrics import HOUR_S, OTHER
from penstock.model.queue import Queue
from penstock.model.structs import copy_fields
from penstock.retry_policies import DOCUMENT_SAVE_ATTEMPTS
from penstock.rules.anomalies import (
    RESOLVE_AFTER_S,
    AnomalyKey,
    add_anomaly,
    get_hour,
    is_reported,
    make_row,
    name_scope,
)
from penstock.rules.anomaly_text import format_anomaly
from penstock.rules.globs import match_glob
from penstock.store import Store

DEFAULT_RANGE_S = 86_400
MAX_ROWS = 20_000
# The documents of an app's own detectors, by name.
DETECTOR = "detector"


class AnomalyQuery(Struct, frozen=True, kw_only=True):
    """Selects anomalies. An empty collection selects all; queues may be globs."""

    since: Moment | None = None
    until: Moment | None = None
    kinds: Collection[str] = ()
    severities: Collection[str] = ()
    queues: Collection[str] = ()
    state: AnomalyState | None = None
    limit: int = 100

    def matches(self, anomaly: Anomaly) -> bool:
        return (
            (not self.kinds or anomaly.kind in self.kinds)
            and (not self.severities or anomaly.severity in self.severities)
            and (not self.queues or any(match_glob(each, anomaly.queue) for each in self.queues))
            and self.state in (None, anomaly.state)
        )


class Anomalies:
    def __init__(
        self, store: Store, directory: QueueCache, tenant: str, allows: Allows | None = None
    ) -> None:
        self.store = store
        self.directory = directory
        self.tenant = tenant
        self.allows = allows or (lambda scope, queue: True)

    async def list(
        self, query: AnomalyQuery | None = None, *, scope: str = "default"
    ) -> AnomalyReport:
        """Lists the anomalies of a scope's queues, and those of the whole store."""
        asked = query or AnomalyQuery()
        await refuse_unknown(self.store, asked.kinds)
        now = await self.store.now()
        since = now - DEFAULT_RANGE_S * MICROS_PER_SECOND if asked.since is None else asked.since
        until = now if asked.until is None else asked.until
        if since > until:
            raise InvalidInput("since must be before until and not in the future")
        read, complete = await read_anomalies(self.store, self.directory, since, until)
        found = [
            each
            for each in read
            if (each.tenant, each.scope) in ((self.tenant, scope), ("", ""))
            and self.allows(scope, each.queue or "*")
            and asked.matches(each)
        ]
        found.sort(key=lambda each: (each.last_at, each.id), reverse=True)
        return AnomalyReport(
            found[: asked.limit],
            dict(Counter(each.kind for each in found).most_common()),
            dict(Counter(each.severity for each in found).most_common()),
            complete,
        )


async def read_anomalies(
    store: Store, directory: QueueCache, since: Moment, until: Moment
) -> tuple[list[Anomaly], bool]:
    """Reads the anomalies of all tenants that happened in the range.

    Returns false if there are more than it reads. Then the oldest hours are missing.
    """
    await directory.refresh()
    now = await store.now()
    first, last = get_hour(since), get_hour(until) + HOUR_S
    rows, complete = await read_newest_rows(store, ANOMALY, first, last, MAX_ROWS)
    found = [
        make_anomaly(row, directory.by_id.get(row.queue_id), now)
        for row in rows
        if is_reported(row) and since <= row.last_at and row.first_at <= until
    ]
    return found, complete


async def read_open(store: Store, directory: QueueCache) -> list[Anomaly]:
    """Returns the anomalies that are open now; one that goes on into a new hour counts once."""
    now = await store.now()
    since = now - RESOLVE_AFTER_S * MICROS_PER_SECOND
    read, _ = await read_anomalies(store, directory, since, now)
    # Of an anomaly in two hours, the row of the newer one.
    found = {each.subject: each for each in reversed(read) if each.state == "open"}
    return list(found.values())


def make_anomaly(row: AnomalyRow, queue: Queue | None, now: Moment) -> Anomaly:
    resolved_at = row.last_at + RESOLVE_AFTER_S * MICROS_PER_SECOND
    is_open = now < resolved_at
    # Anomalies of the whole store have no queue, and are seen by its owner.
    scope = ("" if row.queue_id == 0 else "default") if queue is None else queue.scope.name
    tenant = ("" if row.queue_id == 0 else "default") if queue is None else queue.scope.tenant
    return copy_fields(
        Anomaly,
        row,
        id=row.id,
        state="open" if is_open else "resolved",
        text=format_anomaly(asdict(row)),
        tenant=tenant,
        scope=scope,
        queue="" if queue is None else queue.name,
        type=row.type or None,
        consumer=row.consumer or None,
        hour=row.hour * MICROS_PER_SECOND,
        resolved_at=None if is_open else resolved_at,
        muted=queue is not None and row.kind in queue.settings.anomalies.mute,
        subject="|".join(map(str, row.subject)),
    )


async def record_anomalies(store: Store, directory: QueueCache, rows: Iterable[AnomalyRow]) -> None:
    """Adds cases that a process noticed. Other processes may add to the same rows.

    Raises Busy if they do so again and again; then nothing is added.
    """
    left = list(rows)
    if not left:
        return
    for _ in range(DOCUMENT_SAVE_ATTEMPTS):
        guards = await add_stored(store, directory, left)
        if await store.advance(Change(guards=tuple(guards))) is not None:
            return
    kinds = ", ".join(sorted({row.kind for row in left}))
    raise Busy(f"other processes are recording anomalies; not recorded: {kinds}")


async def add_stored(
    store: Store, directory: QueueCache, rows: Iterable[AnomalyRow]
) -> list[Document]:
    """Adds cases to the stored rows. Returns documents to save by their versions."""
    stored = StoredRows(store)
    for row in map(copy, rows):
        # A row without these is the only one of its kind and queue.
        if row.type or row.consumer:
            queue = directory.by_id.get(row.queue_id)
            scope = "" if queue is None else name_scope(queue)
            known = await stored.find(ANOMALY, name_anomaly(row))
            if known is None and not await stored.use(row, scope):
                row.type = row.consumer = OTHER
        name = name_anomaly(row)
        total = await stored.find(ANOMALY, name)
        if total is None:
            stored.rows[ANOMALY, name] = row
        else:
            add_anomaly(total, row)
    return stored.make_documents()


class StoredRows:
    """Rows that one change adds to, as they were read, by the kind and name of their document."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.rows: dict[tuple[str, str], Any] = {}
        self.versions: dict[tuple[str, str], int] = {}

    async def find(self, kind: str, name: str) -> Any:
        key = (kind, name)
        if key not in self.versions:
            found = await self.store.document(kind, name)
            self.versions[key] = 0 if found is None else found.version or 0
            if found is not None:
                self.rows[key] = decode_row(found)
        return self.rows.get(key)

    async def use(self, row: AnomalyRow, scope: str) -> bool:
        """Counts one more row of its kind and scope. Returns False beyond the limit."""
        name = name_count(row.hour, scope)
        counts: dict[str, int] = await self.find(RECORDED, name) or {}
        used = counts.get(row.kind, 0)
        if used <= MAX_ANOMALIES_PER_KIND:
            self.rows[RECORDED, name] = counts | {row.kind: used + 1}
        return used < MAX_ANOMALIES_PER_KIND

    def make_documents(self) -> list[Document]:
        return [make_row_document(*key, row, self.versions[key]) for key, row in self.rows.items()]


async def refuse_unknown(store: Store, kinds: Iterable[str]) -> None:
    """Refuses kinds that are neither built in nor those of a detector that has run."""
    unknown = set(kinds) - set(SEVERITIES)
    if unknown:
        own = {each.name for each in await store.documents(DETECTOR, limit=MAX_ROWS)}
        refuse_unknown_kinds(unknown, own)


def make_case(
    kind: str,
    at: Moment,
    *,
    queue_id: int = 0,
    consumer: str = "",
    count: int = 1,
    value: float | None = None,
    note: str | None = None,
) -> AnomalyRow:
    key: AnomalyKey = (get_hour(at), kind, queue_id, "", consumer)
    row = make_row(key, value, None, at, count)
    row.note = note
    return row
