"""Keeps the newest results in the store, where a service without Spark finds them.

A document has the name of what it tells, so a run that is repeated changes nothing.
"""

from collections.abc import AsyncIterator, Iterable

import msgspec
from msgspec import Struct

from penstock.document import Document
from penstock.pipeline.figures import Figures
from penstock.pipeline.periods import HOUR, when
from penstock.pipeline.sentences import Row, sentence
from penstock.store import Store

KINDS = ("anomaly", "metrics", "backlog", "consumers", "triage")
# Of names that are ours: others may keep documents of these kinds as well.
OURS = "lake/"
HOURS, BACKLOG_HOURS = 168, 24
PAGE = 200


class Written(Struct, frozen=True):
    """How many documents changed, and how many are gone."""

    saved: int = 0
    deleted: int = 0


async def write_back(told: Figures, store: Store) -> Written:
    """What is there already is left alone; what is no longer so is removed."""
    saved = deleted = 0
    wanted = list(documents(told))
    for kind in KINDS:
        ours = {each.name: each for each in wanted if each.kind == kind}
        stored = {each.name: each.body async for each in stored_of(store, kind)}
        changed = [each for name, each in ours.items() if stored.get(name) != each.body]
        for begin in range(0, len(changed), PAGE):
            saved += sum(await store.save_documents(changed[begin : begin + PAGE]))
        if gone := sorted(stored.keys() - ours.keys()):
            deleted += await store.delete_documents(kind, gone)
    return Written(saved, deleted)


async def stored_of(store: Store, kind: str) -> AsyncIterator[Document]:
    after = OURS
    while found := await store.documents(kind, after, PAGE):
        for each in found:
            if not each.name.startswith(OURS):
                return
            yield each
        after = found[-1].name


def documents(told: Figures) -> Iterable[Document]:
    for row in told.anomalies:
        yield document("anomaly", row["id"], row | {"text": sentence(row)})
    for row in told.clusters:
        yield document("triage", row["id"], row)
    for queue_id, name in told.queues.items():
        hours = told.by_queue[queue_id]
        body = {
            "queue_id": queue_id,
            "queue": name,
            "total": told.totals[queue_id],
            "hours": [{"hour": when(hour), **hours[hour]} for hour in sorted(hours)],
        }
        yield document("metrics", str(queue_id), body)
    since = when(told.hours[-1] - (BACKLOG_HOURS - 1) * HOUR)
    for queue_id, rows in told.backlog.items():
        minutes = [row for row in rows if row["minute"] >= since] or rows[-1:]
        yield document("backlog", str(queue_id), {"queue_id": queue_id, "minutes": minutes})
    if told.consumers:
        yield document("consumers", "busiest", {"consumers": told.consumers})


def document(kind: str, name: str, body: Row) -> Document:
    return Document(kind=kind, name=f"{OURS}{name}", body=msgspec.json.encode(body))
