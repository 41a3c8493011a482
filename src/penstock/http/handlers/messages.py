"""Routes for messages: get, list, cancel, redrive, purge, wait for a result."""

import asyncio
from typing import Annotated

from msgspec import UNSET, Meta
from msgspec.structs import replace
from starlette.responses import Response

from penstock.app.job import failure_of
from penstock.broker.match_count import count_matches
from penstock.broker.search import join_terms
from penstock.errors import InvalidInput, NotFound
from penstock.http.context import RequestContext
from penstock.http.handlers.publish import refuse_shell
from penstock.http.operations import OperationTable
from penstock.model.message import Record, State
from penstock.rules.items import find_successor
from penstock.rules.masking import list_hidden, mask_record, mask_result
from penstock.wire.fields import (
    Cursor,
    PageLimit,
    QueueName,
    Reference,
    Word,
    decode_body,
    is_json,
    to_optional_datetime,
)
from penstock.wire.records import (
    CancelRequest,
    CancelResponse,
    Explanation,
    MessageCount,
    MessagePage,
    MessageView,
    RedriveRequest,
    RedriveResponse,
    make_explanation,
)

messages = OperationTable("messages")
FilterText = Annotated[str, Meta(description="A filter, such as state:dead age>10m.")]
MAX_WAIT_S = 30.0
# How often the store is polled in case an event is missed.
POLL_INTERVAL_S = 1.0


@messages.add("GET", "/v1/messages", "List messages", MessagePage)
async def list_messages(
    call: RequestContext,
    queue: QueueName | None = None,
    state: State | None = None,
    type: Word | None = None,
    correlation_id: Word | None = None,
    name: Word | None = None,
    limit: PageLimit = 50,
    cursor: Cursor | None = None,
    filter: FilterText | None = None,
    bodies: Annotated[bool, Meta(description="Include the bodies.")] = True,
) -> MessagePage:
    """`name` finds the message of that name in `queue`. `filter` selects by any field, such as
    `state:dead error:timeout label.tier:gold`."""
    if name is not None:
        return await find_by_name(call, queue, name)
    if filter is not None:
        text = join_terms(filter, queue=queue, state=state, type=type, correlation=correlation_id)
        return omit_bodies(await search_messages(call, text, limit, cursor), bodies)
    tokens = call.service.tokens
    listed_by = (call.caller.tenant, call.scope, queue, state, type, correlation_id)
    before = None if cursor is None else tokens.unseal_cursor(cursor, listed_by)
    found = await call.admin.find(
        queue,
        state=state,
        type=type,
        correlation_id=correlation_id,
        before=before,
        limit=limit,
        scope=call.scope,
    )
    listed = [await call.view(record) for record in found]
    more = len(found) == limit
    last = tokens.seal_cursor(found[-1].message.id, listed_by) if more else None
    return omit_bodies(MessagePage(listed, last), bodies)


@messages.add("GET", "/v1/messages/count", "Count messages", MessageCount)
async def count_messages(call: RequestContext, filter: FilterText = "") -> MessageCount:
    """Counts the messages that match, within bounds. Filters by queue and state of unfinished
    messages are answered from counters, which are a second old, or older where counting is slow.
    Others are counted up to 10,000."""
    found = await count_matches(
        call.service.store,
        filter,
        await call.admin.queues(scope=call.scope),
        (await call.service.counts.get_snapshot()).depths,
        call.reveals,
    )
    return MessageCount(found.count, found.exact)


def omit_bodies(page: MessagePage, bodies: bool) -> MessagePage:
    if bodies:
        return page
    shown = [replace(view, body=UNSET, body_base64=None) for view in page.messages]
    return replace(page, messages=shown)


async def search_messages(
    call: RequestContext, filter: str, limit: int, cursor: str | None
) -> MessagePage:
    tokens = call.service.tokens
    sealed_by = (call.caller.tenant, call.scope, filter)
    after = None if cursor is None else tokens.unseal_name(cursor, sealed_by)
    found = await call.admin.search(filter, cursor=after, limit=limit, scope=call.scope)
    return MessagePage(
        [await call.view(record) for record in found.records],
        None if found.cursor is None else tokens.seal_name(found.cursor, sealed_by),
        to_optional_datetime(found.scanned_to),
    )


async def find_by_name(call: RequestContext, queue: str | None, name: str) -> MessagePage:
    """Finds names that a path cannot carry, because they end like the path of an operation."""
    if queue is None:
        raise InvalidInput("name requires queue")
    try:
        record = await call.admin.get(f"{queue}/{name}", scope=call.scope)
    except NotFound:
        return MessagePage([])
    return MessagePage([await call.view(record)])


@messages.add(
    "POST",
    "/v1/messages/{reference:path}/cancel",
    "Cancel a message",
    CancelResponse,
    takes=CancelRequest,
    example={"force": False},
)
async def cancel_message(
    call: RequestContext, reference: Reference, how: CancelRequest
) -> CancelResponse:
    record = await call.admin.get(reference, scope=call.scope)
    id = record.message.id
    if how.tree:
        done = await call.admin.cancel_tree(id, force=how.force, scope=call.scope)
        call.service.wake_tail()
        return CancelResponse(str(id), done.state, done.cancel_requested, done.children)
    answer = await call.admin.cancel(id, force=how.force, scope=call.scope)
    call.service.wake_tail()
    state = answer.state or State.CANCELLED
    return CancelResponse(str(id), state, answer.cancel_requested)


@messages.add(
    "POST",
    "/v1/messages/{reference:path}/redrive",
    "Redrive a message",
    RedriveResponse,
    takes=RedriveRequest,
    example={"body": {"to": "ada@example.org"}},
)
async def redrive_message(
    call: RequestContext, reference: Reference, edited: RedriveRequest
) -> RedriveResponse:
    body = decode_body(edited.body, edited.body_base64) or None
    if edited.from_step is not None:
        if body is not None:
            raise InvalidInput("give body or from_step, not both: an edited message has no steps")
        record = await call.admin.get(reference, scope=call.scope)
        again, _ = await call.broker.waits.redrive_from(record.message.id, edited.from_step)
        call.service.wake_tail()
        return RedriveResponse(str(again.id))
    if body is not None:
        record = await call.admin.get(reference, scope=call.scope)
        queue = await call.broker.get_queue_by_id(record.message.queue_id)
        refuse_shell(call, record.message.type, queue.name)
    published = await call.admin.redrive(reference, body=body, scope=call.scope)
    call.service.wake_tail()
    return RedriveResponse(str(published.id))


@messages.add("POST", "/v1/messages/{reference:path}/purge", "Purge a dead letter", CancelResponse)
async def purge_message(call: RequestContext, reference: Reference) -> CancelResponse:
    """Ends a dead letter as cancelled."""
    record = await call.admin.get(reference, scope=call.scope)
    await call.admin.purge_dead(record.message.id, scope=call.scope)
    call.service.wake_tail()
    return CancelResponse(str(record.message.id), State.CANCELLED, False)


@messages.add(
    "GET",
    "/v1/messages/{reference:path}/result",
    "Get the result of a message",
    "application/json",
    also={202: "Not finished yet.", 204: "Completed without a result."},
)
async def get_result(
    call: RequestContext,
    reference: Reference,
    wait: Annotated[float, Meta(ge=0, le=2**31, description="Seconds to wait, at most 30.")] = 0.0,
) -> Response:
    """Fails with JOB_FAILED if the message failed, expired or is dead, and with JOB_CANCELLED if it
    was cancelled."""
    record = await wait_for_end(call, reference, min(wait, MAX_WAIT_S))
    id = str(record.message.id)
    queue = await call.broker.get_queue_by_id(record.message.queue_id)
    hidden = list_hidden(queue, call.reveals)
    if not has_ended(record):
        return Response(status_code=202, headers={"x-message-state": record.state.value})
    if record.state is not State.COMPLETED:
        raise failure_of(f"message {id}", mask_record(record, hidden).record)
    body = await call.broker.read_result(record.message.id)
    if body is None:
        return Response(status_code=204)
    body = mask_result(body, hidden)
    media_type = "application/json" if is_json(body or b" ") else "application/octet-stream"
    return Response(body, media_type=media_type)


async def wait_for_end(call: RequestContext, reference: str, wait: float) -> Record:
    """Returns the message when it has ended or the wait is over."""
    hub = call.service.hub
    record = await get_last(call, reference)
    if has_ended(record) or wait <= 0:
        return record
    id = record.message.id
    happened = hub.expect(id)
    until = asyncio.get_running_loop().time() + wait
    try:
        await call.service.history_tail.start()
        while not has_ended(record) and (left := until - asyncio.get_running_loop().time()) > 0:
            await wait_for_event(happened, min(left, POLL_INTERVAL_S))
            record = await get_last(call, record.message.id)
            if hub.closed:
                break
    finally:
        hub.forget(id, happened)
    return record


async def get_last(call: RequestContext, reference: int | str) -> Record:
    """Returns the message, or the last one that replaced it by a move or an edit."""
    record = await call.admin.get(reference, scope=call.scope)
    while (successor := find_successor(record)) is not None:
        record = await call.admin.get(successor, scope=call.scope)
    return record


async def wait_for_event(happened: asyncio.Event, timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            await happened.wait()
    except TimeoutError:
        return
    happened.clear()


def has_ended(record: Record) -> bool:
    return record.state.final or record.state is State.DEAD


@messages.add(
    "GET",
    "/v1/messages/{reference:path}/explain",
    "Explain why a message does not run",
    Explanation,
)
async def explain(call: RequestContext, reference: Reference) -> Explanation:
    """Returns why the message does not run or has not finished, and what would change it."""
    return make_explanation(await call.admin.explain(reference, scope=call.scope))


@messages.add("GET", "/v1/messages/{reference:path}", "Get a message", MessageView)
async def get_message(call: RequestContext, reference: Reference) -> MessageView:
    """Returns the message with its timeline."""
    record = await call.admin.get(reference, scope=call.scope)
    return await call.view(record, timeline=True)
