"""The documents of the historian: how metrics rows and anomalies are named and encoded.

Only the process whose change is accepted writes them, so rows may be cached between changes.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from penstock.model.anomalies import AnomalyRow
from penstock.model.documents import Document
from penstock.model.message import NEVER, Moment
from penstock.model.metrics import HOUR_S, BacklogHour, ConsumerHour, QueueHour
from penstock.model.store_types import Cursor
from penstock.store import Check, Store

Row = TypeVar("Row")
Minutes = dict[int, list[int]]
QUEUE_HOUR, QUEUE_MINUTES = "queue_hour", "queue_minutes"
BACKLOG_HOUR, BACKLOG_MINUTES = "backlog_hour", "backlog_minutes"
CONSUMER_HOUR, CLAIM_SECONDS = "consumer_hour", "claim_seconds"
WAIT_MINUTE, ANOMALY = "wait_minute", "anomaly_hour"
# How many anomalies of each kind were recorded in a scope, beside the historian.
RECORDED = "anomaly_count"
STATE_KIND, STATE_NAME = "historian", "state"
TYPES: dict[str, Any] = {
    QUEUE_HOUR: QueueHour,
    QUEUE_MINUTES: Minutes,
    BACKLOG_HOUR: BacklogHour,
    BACKLOG_MINUTES: Minutes,
    CONSUMER_HOUR: ConsumerHour,
    CLAIM_SECONDS: Minutes,
    WAIT_MINUTE: dict[int, int],
    ANOMALY: AnomalyRow,
    RECORDED: dict[str, int],
}
MAX_ANOMALIES_PER_KIND = 200
DAY_S = 86_400
# How long rows are kept after their hour, in seconds.
KEPT_S = {
    QUEUE_HOUR: 90 * DAY_S,
    QUEUE_MINUTES: 2 * DAY_S,
    BACKLOG_HOUR: 90 * DAY_S,
    BACKLOG_MINUTES: 2 * DAY_S,
    CONSUMER_HOUR: 2 * DAY_S,
    CLAIM_SECONDS: 3_600,
    WAIT_MINUTE: 3_600,
    ANOMALY: 90 * DAY_S,
    RECORDED: DAY_S,
}
PAGE_SIZE = 500
# Hours of scopes whose recorded anomalies `penstock doctor` looks at.
MAX_COUNTS_CHECKED = 10_000
encode = msgspec.json.Encoder().encode
DECODERS = {kind: msgspec.json.Decoder(each) for kind, each in TYPES.items()}


class QueueTotals(Struct):
    """Messages of a queue that are unfinished and dead, and when a delivery last ended."""

    unfinished: int = 0
    dead: int = 0
    worked_at: Moment = 0


class HistorianState(Struct):
    """The position of the historian in the feed, and its state between pages."""

    cursor: Cursor = Cursor()
    # Everything that ended before this moment is counted.
    reached: Moment = 0
    # The last history row that was counted.
    position: int = 0
    totals: dict[int, QueueTotals] = field(default_factory=dict)
    # The last batch of each queue: when it was published, and how many messages it had so far.
    batches: dict[int, tuple[Moment, int]] = field(default_factory=dict)
    # Rows of an hour by limit, to find limits that are exceeded.
    used: dict[str, int] = field(default_factory=dict)
    # Limits that are in force, by name, and in which hour they were last exceeded.
    limited: dict[str, int] = field(default_factory=dict)


decode_state = msgspec.json.Decoder(HistorianState).decode


def name_queue_hour(queue_id: int, hour: int, type_: str) -> str:
    return f"{queue_id:010d}/{hour:012d}/{type_}"


def name_backlog_hour(queue_id: int, hour: int) -> str:
    return f"{queue_id:010d}/{hour:012d}"


def name_consumer_hour(hour: int, queue_id: int, consumer: str) -> str:
    return f"{hour:012d}/{queue_id:010d}/{consumer}"


def name_anomaly(row: AnomalyRow) -> str:
    return f"{row.hour:012d}/{row.id}"


def name_count(hour: int, scope: str) -> str:
    return f"{hour:012d}/{scope}"


def find_hour(kind: str, name: str) -> int:
    parts = name.split("/", 2)
    return int(parts[1] if kind in BY_QUEUE else parts[0])


BY_QUEUE = (QUEUE_HOUR, QUEUE_MINUTES, BACKLOG_HOUR, BACKLOG_MINUTES, WAIT_MINUTE)


def make_row_document(kind: str, name: str, row: object, version: int | None = None) -> Document:
    until = (find_hour(kind, name) + HOUR_S + KEPT_S[kind]) * 1_000_000
    return Document(
        kind=kind, name=name, body=encode(row), version=version, expires_at=min(until, NEVER)
    )


def decode_row(document: Document) -> Any:
    return DECODERS[document.kind].decode(document.body)


async def read_state(store: Store) -> tuple[HistorianState, int]:
    """Returns the state and its version; version 0 if the historian never ran."""
    found = await store.document(STATE_KIND, STATE_NAME)
    if found is None:
        return HistorianState(), 0
    return decode_state(found.body), found.version or 0


async def check_limits(store: Store) -> Check:
    """Names the limits of metrics that were exceeded in the last day."""
    state, _ = await read_state(store)
    limited = {*state.limited}
    first = f"{await store.now() // 1_000_000 - DAY_S:012d}"
    for name, counts in await read_rows(store, RECORDED, first, "~", MAX_COUNTS_CHECKED):
        scope = name.partition("/")[2]
        limited |= {
            f"{kind} anomalies of scope {scope}"
            for kind, count in counts.items()
            if count > MAX_ANOMALIES_PER_KIND
        }
    if limited:
        names = ", ".join(sorted(limited))
        return Check("metrics", f"more than the limit of {names}; the rest is counted as other",
                     False)  # fmt: skip
    return Check("metrics", "no limit is exceeded")


async def read_rows(
    store: Store, kind: str, first: str, last: str, limit: int
) -> list[tuple[str, Any]]:
    """Reads rows whose names are from `first` to before `last`, in the order of their names."""
    found: list[tuple[str, Any]] = []
    after = first
    while len(found) < limit:
        page = await store.documents(kind, after, min(PAGE_SIZE, limit - len(found)))
        for each in page:
            if each.name >= last:
                return found
            found.append((each.name, decode_row(each)))
        if len(page) < min(PAGE_SIZE, limit):
            break
        after = page[-1].name
    return found


async def read_newest_rows(
    store: Store, kind: str, since: int, until: int, limit: int
) -> tuple[list[Any], bool]:
    """Reads the rows of hours from `since` to before `until`, the newest hours first.

    Their names begin with the hour. Returns false if there are more rows than the limit: then some
    of the oldest hour that was reached, and all of the hours before it, are missing.
    """
    found: list[Any] = []
    last, span = until, HOUR_S
    while last > since:
        first = max(since, last - span)
        room = limit - len(found)
        rows = await read_rows(store, kind, f"{first:012d}", f"{last:012d}", room + 1)
        if len(rows) > room and span > HOUR_S:
            span = HOUR_S
            continue
        found += [row for _, row in rows[:room]]
        if len(rows) > room:
            return found, False
        last = first
        # Hours in which little happened are read together.
        span = 2 * span if len(rows) < PAGE_SIZE else HOUR_S
    return found, True
