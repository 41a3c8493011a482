"""Routes for failed messages, grouped by the cause of their failure."""

import time
from typing import Annotated

from msgspec import Meta, Struct

from penstock.broker.messages import Admin
from penstock.broker.search_sources import MAX_MERGED_QUEUES
from penstock.http.context import RequestContext
from penstock.http.dashboard.answers import describe_rights
from penstock.http.operations import OperationTable
from penstock.model.message import MICROS_PER_SECOND, Moment, Record
from penstock.model.queue import Queue
from penstock.rules.failure_groups import (
    MAX_GROUPS,
    FailedMessage,
    FailureSpan,
    fingerprint_error,
    group_failures,
)
from penstock.rules.filter_match import find_failed_at
from penstock.rules.masking import list_hidden
from penstock.wire.dashboard import FailureCauses, FailureGroups, make_group_view
from penstock.wire.fields import Id, Name, to_datetime

failures = OperationTable("dashboard", scoped=False)
FAILURES_PAGE_SIZE = 200
# Dead letters and failed messages, each.
MAX_FAILURES = 2_500
MAX_FAILURES_S = 1.0
# They are read seldom, in the background of a page.
MAX_CAUSES_S = 3.0
CAUSES_SPAN: Moment = 24 * 3_600 * MICROS_PER_SECOND


class FailuresPage(Struct):
    """Messages that failed since a moment. `complete` is false if there may be more."""

    records: list[Record] = []
    scanned: int = 0
    complete: bool = False


@failures.add("GET", "/v1/failures", "Group failed messages by error", FailureGroups, scoped=True)
async def list_failures(
    call: RequestContext,
    queue: Name | None = None,
    hours: Annotated[float, Meta(gt=0, le=2_400, description="How far back to search.")] = 24.0,
    like: Id | None = None,
) -> FailureGroups:
    """Reads dead letters and failed messages within bounds, and groups them by a fingerprint of
    their error in which numbers, names and paths are placeholders. With `like`, only the group of
    that message."""
    now = await call.service.store.now()
    since = now - int(hours * 3_600 * MICROS_PER_SECOND)
    page = await read_failures(call.admin, call.scope, queue, since, MAX_FAILURES_S)
    found = [await make_failure(call, record) for record in page.records]
    if like is not None:
        sample = await make_failure(call, await call.admin.get(like, scope=call.scope))
        found = [failure for failure in found if failure.fingerprint == sample.fingerprint]
    queues = await call.admin.queues(scope=call.scope)
    hidden = [each.name for each in queues if hides_errors(call, each)]
    groups = group_failures(found, FailureSpan(since, now, queue, hidden))
    return FailureGroups(
        [make_group_view(group) for group in groups],
        page.scanned,
        page.complete,
        to_datetime(since),
        to_datetime(now),
    )


async def read_failures(
    admin: Admin, scope: str, queue: str | None, since: Moment, seconds: float
) -> FailuresPage:
    """Reads the newest dead letters and failed messages for so long at most."""
    began, where = time.monotonic(), "" if queue is None else f" queue:{queue}"
    # Dead letters of more queues are not listed the last dead first.
    ordered = queue is not None or (len(await admin.queues(scope=scope)) <= MAX_MERGED_QUEUES)
    half = began + seconds / 2
    dead = await read_matching(
        admin, scope, f"state:dead{where}", since, half, is_newest_first=ordered
    )
    failed = await read_matching(admin, scope, f"state:failed{where}", since, began + seconds)
    return FailuresPage(
        dead.records + failed.records,
        dead.scanned + failed.scanned,
        dead.complete and failed.complete,
    )


async def read_matching(
    admin: Admin,
    scope: str,
    filter: str,
    since: Moment,
    stop_at: float,
    *,
    is_newest_first: bool = False,
) -> FailuresPage:
    read, cursor = FailuresPage(), None
    while not read.complete and read.scanned < MAX_FAILURES and time.monotonic() < stop_at:
        page = await admin.search(filter, cursor=cursor, limit=FAILURES_PAGE_SIZE, scope=scope)
        recent = [record for record in page.records if get_failed_at(record) >= since]
        is_past = is_newest_first and len(recent) < len(page.records)
        read.records += recent
        cursor, read.complete = page.cursor, page.cursor is None or is_past
        read.scanned += len(page.records)
    return read


def get_failed_at(record: Record) -> Moment:
    return find_failed_at(record) or record.message.created_at


def hides_errors(call: RequestContext, queue: Queue) -> bool:
    return "error" in list_hidden(queue, call.reveals)


@failures.add("GET", "/v1/failures/causes", "List causes of failure", FailureCauses, scoped=True)
async def list_causes(call: RequestContext) -> FailureCauses:
    """Fingerprints of the last 24 hours, read again at most every 10 seconds."""
    directory = call.service.directory
    await directory.refresh()
    # A queue whose errors are masked since then changes the version.
    key = (describe_rights(call.caller, call.scope), directory.version)
    return await call.service.causes.get(key, lambda: read_causes(call))


async def read_causes(call: RequestContext) -> FailureCauses:
    since = await call.service.store.now() - CAUSES_SPAN
    page = await read_failures(call.admin, call.scope, None, since, MAX_CAUSES_S)
    errors = {await read_error(call, record) for record in page.records}
    fingerprints = sorted({fingerprint_error(error) for error in errors})
    return FailureCauses(fingerprints[:MAX_GROUPS], page.complete)


async def make_failure(call: RequestContext, record: Record) -> FailedMessage:
    """Takes the view, in which fields that the caller may not see are masked."""
    view = await call.view(record)
    last = record.timeline[-1] if record.timeline else None
    traits = {"queue": view.queue, "type": view.type}
    traits |= {f"label.{name}": value for name, value in (view.labels or {}).items()}
    if last is not None and last.consumer:
        traits["consumer"] = last.consumer
    error = await read_error(call, record)
    return FailedMessage(record.message.id, view.queue, error, get_failed_at(record), traits)


async def read_error(call: RequestContext, record: Record) -> str | None:
    """Returns the error, or None if the caller may not see it."""
    queue = await call.broker.get_queue_by_id(record.message.queue_id)
    return None if hides_errors(call, queue) else record.error or ""
