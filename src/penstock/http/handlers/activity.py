"""Routes for activity and traces."""

from typing import Annotated

from msgspec import Meta

from penstock.broker.activity.queries import ActivityLog
from penstock.broker.filters import FilterCompleter
from penstock.http.context import RequestContext
from penstock.http.operations import OperationTable
from penstock.model.activity import TracedMessage
from penstock.model.message import NEVER
from penstock.rules.access import Right
from penstock.wire.activity import (
    ActivityPageView,
    FilterCompletion,
    TracedMessageView,
    TraceView,
    make_activity_view,
)
from penstock.wire.fields import Cursor, PageLimit, Time, Word, to_moment, to_optional_datetime
from penstock.wire.records import make_message_view

activity = OperationTable("activity", scoped=False)
Kinds = Annotated[tuple[str, ...], Meta(max_length=100, description="Kinds of events, or act.")]
FilterText = Annotated[str, Meta(description="A filter, such as queue:mail* -state:completed.")]


def open_log(call: RequestContext) -> ActivityLog:
    """The audit log is visible to callers with the right `access`."""
    sees_acts = Right.ACCESS in call.caller.access.rights
    return ActivityLog(
        call.service.store, call.admin, call.caller.may_see_entry if sees_acts else None
    )


@activity.add("GET", "/v1/activity", "List activity", ActivityPageView)
async def list_activity(
    call: RequestContext,
    filter: FilterText = "",
    kind: Kinds = (),
    since: Time | None = None,
    until: Time | None = None,
    limit: PageLimit = 50,
    cursor: Cursor | None = None,
) -> ActivityPageView:
    """Lists what happened to the messages of all queues that the caller may read, newest first.
    With the right `access`, entries of the audit log are included. `filter` selects by fields that
    events carry."""
    tokens = call.service.tokens
    sealed_by = ("activity", call.caller.tenant, filter, kind, str(since), str(until))
    after = None if cursor is None else tokens.unseal_name(cursor, sealed_by)
    found = await open_log(call).find(
        filter,
        kinds=kind,
        since=0 if since is None else to_moment(since),
        until=NEVER if until is None else to_moment(until),
        cursor=after,
        limit=limit,
    )
    return ActivityPageView(
        [make_activity_view(entry) for entry in found.entries],
        None if found.cursor is None else tokens.seal_name(found.cursor, sealed_by),
        to_optional_datetime(found.scanned_to),
    )


@activity.add("GET", "/v1/trace/{correlation_id:path}", "Trace a correlation id", TraceView)
async def trace(call: RequestContext, correlation_id: Word) -> TraceView:
    """Returns the messages of a correlation id in all queues that the caller may read, as a tree by
    their parents and causes, and everything that happened, oldest first. With the right `access`,
    this includes audit entries about these messages, and about the request with this id."""
    found = await open_log(call).trace(correlation_id)
    return TraceView(
        correlation_id,
        [make_traced_view(each) for each in found.messages],
        [make_activity_view(event) for event in found.events],
        found.complete,
    )


@activity.add("GET", "/v1/filter/complete", "Complete a filter", FilterCompletion)
async def complete_filter(
    call: RequestContext,
    text: Annotated[str, Meta(description="A filter, complete or not.")] = "",
    position: Annotated[int, Meta(ge=0, description="Default: the end of the text.")] | None = None,
) -> FilterCompletion:
    """Returns texts that may replace the filter from `start` to `position`: fields, and values that
    were seen recently in queues that the caller may read. It reads no messages."""
    completer = FilterCompleter(call.admin, call.broker.recent_history)
    found = await completer.complete(text, position)
    return FilterCompletion(found.start, found.items)


def make_traced_view(traced: TracedMessage) -> TracedMessageView:
    """The log has masked the record already."""
    return TracedMessageView(
        make_message_view(traced.record, traced.queue, timeline=True),
        traced.scope,
        traced.depth,
        None if traced.parent is None else str(traced.parent),
    )
