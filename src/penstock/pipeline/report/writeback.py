"""Writes the newest results to the store as documents, for services without Spark.

Document names are deterministic, so a repeated run changes nothing.
"""

from collections.abc import AsyncIterator, Iterable

import msgspec
from msgspec import Struct

from penstock.model.documents import Document
from penstock.pipeline.periods import HOUR, to_datetime
from penstock.pipeline.report.data import ReportData
from penstock.rules.anomaly_text import Row, format_anomaly
from penstock.store import Store

KINDS = ("anomaly", "metrics", "backlog", "consumers", "triage")
# Other programs may store documents of these kinds under other names.
NAME_PREFIX = "lake/"
HOURS, BACKLOG_HOURS = 168, 24
PAGE_SIZE = 200


class WritebackResult(Struct, frozen=True):
    """Counts the documents saved and deleted."""

    saved: int = 0
    deleted: int = 0


async def write_back(report: ReportData, store: Store) -> WritebackResult:
    """Saves changed documents and deletes outdated ones."""
    saved = deleted = 0
    wanted = list(make_documents(report))
    for kind in KINDS:
        ours = {each.name: each for each in wanted if each.kind == kind}
        stored = {each.name: each.body async for each in read_stored(store, kind)}
        changed = [each for name, each in ours.items() if stored.get(name) != each.body]
        for begin in range(0, len(changed), PAGE_SIZE):
            saved += sum(await store.save_documents(changed[begin : begin + PAGE_SIZE]))
        if gone := sorted(stored.keys() - ours.keys()):
            deleted += await store.delete_documents(kind, gone)
    return WritebackResult(saved, deleted)


async def read_stored(store: Store, kind: str) -> AsyncIterator[Document]:
    after = NAME_PREFIX
    while found := await store.documents(kind, after, PAGE_SIZE):
        for each in found:
            if not each.name.startswith(NAME_PREFIX):
                return
            yield each
        after = found[-1].name


def make_documents(report: ReportData) -> Iterable[Document]:
    for row in report.anomalies:
        yield make_document("anomaly", row["id"], row | {"text": format_anomaly(row)})
    for row in report.clusters:
        yield make_document("triage", row["id"], row)
    for queue_id, name in report.queues.items():
        hours = report.by_queue[queue_id]
        body = {
            "queue_id": queue_id,
            "queue": name,
            "total": report.totals[queue_id],
            "hours": [{"hour": to_datetime(hour), **hours[hour]} for hour in sorted(hours)],
        }
        yield make_document("metrics", str(queue_id), body)
    since = to_datetime(report.hours[-1] - (BACKLOG_HOURS - 1) * HOUR)
    for queue_id, rows in report.backlog.items():
        minutes = [row for row in rows if row["minute"] >= since] or rows[-1:]
        yield make_document("backlog", str(queue_id), {"queue_id": queue_id, "minutes": minutes})
    if report.consumers:
        yield make_document("consumers", "busiest", {"consumers": report.consumers})


def make_document(kind: str, name: str, body: Row) -> Document:
    return Document(kind=kind, name=f"{NAME_PREFIX}{name}", body=msgspec.json.encode(body))
