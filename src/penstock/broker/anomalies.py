"""Lists anomalies, and records those that only a running process notices."""

from collections import Counter
from collections.abc import Collection, Iterable
from copy import copy

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from penstock.broker.metrics.queries import Allows
from penstock.broker.metrics.rows import ANOMALY, make_row_document, name_anomaly, read_rows
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
from penstock.model.metrics import HOUR_S
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
)
from penstock.rules.anomaly_text import format_anomaly
from penstock.rules.globs import match_glob
from penstock.store import Store

decode_anomaly = msgspec.json.Decoder(AnomalyRow).decode
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
        found = [
            each
            for each in await read_anomalies(self.store, self.directory, since, until)
            if (each.tenant, each.scope) in ((self.tenant, scope), ("", ""))
            and self.allows(scope, each.queue or "*")
            and asked.matches(each)
        ]
        found.sort(key=lambda each: (each.last_at, each.id), reverse=True)
        return AnomalyReport(
            found[: asked.limit],
            dict(Counter(each.kind for each in found).most_common()),
            dict(Counter(each.severity for each in found).most_common()),
        )


async def read_anomalies(
    store: Store, directory: QueueCache, since: Moment, until: Moment
) -> list[Anomaly]:
    """Reads the anomalies of all tenants that happened in the range."""
    await directory.refresh()
    now = await store.now()
    last = get_hour(until) + HOUR_S
    rows = await read_rows(store, ANOMALY, f"{get_hour(since):012d}", f"{last:012d}", MAX_ROWS)
    return [
        make_anomaly(row, directory.by_id.get(row.queue_id), now)
        for _, row in rows
        if is_reported(row) and since <= row.last_at and row.first_at <= until
    ]


async def read_open(store: Store, directory: QueueCache) -> list[Anomaly]:
    """Returns the anomalies that are open now; one that goes on into a new hour counts once."""
    now = await store.now()
    since = now - RESOLVE_AFTER_S * MICROS_PER_SECOND
    found = {
        each.subject: each
        for each in await read_anomalies(store, directory, since, now)
        if each.state == "open"
    }
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


async def record_anomalies(store: Store, rows: Iterable[AnomalyRow]) -> None:
    """Adds cases that a process noticed. Other processes may add to the same rows.

    Raises Busy if they do so again and again; then nothing is added.
    """
    left = list(rows)
    if not left:
        return
    for _ in range(DOCUMENT_SAVE_ATTEMPTS):
        guards = await add_stored(store, left)
        if await store.advance(Change(guards=tuple(guards))) is not None:
            return
    kinds = ", ".join(sorted({row.kind for row in left}))
    raise Busy(f"other processes are recording anomalies; not recorded: {kinds}")


async def add_stored(store: Store, rows: Iterable[AnomalyRow]) -> list[Document]:
    """Adds cases to the stored rows. Returns documents to save by their versions."""
    totals: dict[str, AnomalyRow] = {}
    for row in rows:
        if (name := name_anomaly(row)) in totals:
            add_anomaly(totals[name], row)
        else:
            totals[name] = copy(row)
    guards = []
    for name, row in totals.items():
        found = await store.document(ANOMALY, name)
        total, version = row, 0
        if found is not None:
            total, version = decode_anomaly(found.body), found.version or 0
            add_anomaly(total, row)
        guards.append(make_row_document(ANOMALY, name, total, version))
    return guards


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
