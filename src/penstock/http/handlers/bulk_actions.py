"""Operations on bulk actions, and on single messages that are moved, edited or reprioritised."""

from typing import Annotated

from msgspec import Meta

from penstock.broker.bulk.actions import Bulk
from penstock.http.auth.principal import OPERATOR, Principal, RightScope
from penstock.http.context import RequestContext
from penstock.http.handlers.publish import refuse_shell
from penstock.http.operations import OperationTable
from penstock.model.bulk import BulkAction, BulkActor
from penstock.rules.access import Right
from penstock.wire.bulk import (
    BulkId,
    BulkList,
    BulkView,
    EditRequest,
    MoveRequest,
    NewBulk,
    ReplacedMessage,
    ReprioritisedMessage,
    ReprioritiseRequest,
    make_bulk_view,
    parse_horizon,
)
from penstock.wire.fields import PageLimit, Reference, decode_body

bulk_actions = OperationTable("bulk", scoped=False)
KEY_KIND = "key:"
EXAMPLE = {"verb": "redrive", "filter": "state:dead queue:mail error:timeout", "rate": 50}


def make_actor(caller: Principal) -> BulkActor:
    """The rights of a key are read again for every batch; those of a token last as long as it."""
    if caller is OPERATOR:
        return BulkActor(caller.subject)
    if caller.subject.startswith(KEY_KIND):
        return BulkActor(caller.subject, caller.subject.removeprefix(KEY_KIND))
    access = caller.access
    grants, scopes = tuple(map(str, access.grants)), tuple(sorted(access.scopes))
    return BulkActor(caller.subject, None, grants, scopes, caller.token_until)


def get_bulk(call: RequestContext) -> Bulk:
    return call.broker.limit_bulk(make_actor(call.caller))


def answer(call: RequestContext, action: BulkAction) -> BulkView:
    call.service.wake_tail()
    return make_bulk_view(action)


@bulk_actions.add("POST", "/v1/bulk", "Start a bulk action", BulkView, takes=NewBulk, status=202,
                  scoped=True, example=EXAMPLE)  # fmt: skip
async def start_bulk(call: RequestContext, new: NewBulk) -> BulkView:
    """Applies a verb to all messages that match the filter, in the background. It continues after a
    restart. A short dry run is already over in the response, and is not stored."""
    action = await get_bulk(call).start(
        new.verb,
        filter=new.filter,
        ids=None if new.ids is None else [int(id) for id in new.ids],
        queue=new.queue,
        to_scope=new.to_scope,
        priority=new.priority,
        rate=new.rate,
        dry_run=new.dry_run,
        name=new.name,
        as_of=None if new.horizon is None else parse_horizon(new.horizon),
        scope=call.scope,
    )
    if action.state.active:
        call.service.wake_bulk_runner()
    return answer(call, action)


@bulk_actions.add("GET", "/v1/bulk", "List bulk actions", BulkList)
async def list_bulks(
    call: RequestContext,
    active: Annotated[bool, Meta(description="Only actions that have not ended.")] = False,
    limit: PageLimit = 50,
) -> BulkList:
    """Lists actions of the caller, and those of others in scopes that the caller may read as a
    whole. Ended ones are kept for 30 days."""
    found = await get_bulk(call).list_actions(active=active, limit=limit)
    return BulkList([make_bulk_view(each) for each in found])


@bulk_actions.add("GET", "/v1/bulk/{id}", "Get a bulk action", BulkView,
                  extent=RightScope.SCOPE)  # fmt: skip
async def get_bulk_action(call: RequestContext, id: BulkId) -> BulkView:
    return make_bulk_view(await get_bulk(call).get(int(id)))


@bulk_actions.add("POST", "/v1/bulk/{id}/pause", "Pause a bulk action", BulkView,
                  extent=RightScope.SCOPE)  # fmt: skip
async def pause_bulk(call: RequestContext, id: BulkId) -> BulkView:
    return answer(call, await get_bulk(call).pause(int(id)))


@bulk_actions.add("POST", "/v1/bulk/{id}/resume", "Resume a bulk action", BulkView,
                  extent=RightScope.SCOPE)  # fmt: skip
async def resume_bulk(call: RequestContext, id: BulkId) -> BulkView:
    """The action continues with the rights of the caller that resumes it."""
    action = await get_bulk(call).resume(int(id))
    call.service.wake_bulk_runner()
    return answer(call, action)


@bulk_actions.add("POST", "/v1/bulk/{id}/abort", "Abort a bulk action", BulkView,
                  extent=RightScope.SCOPE)  # fmt: skip
async def abort_bulk(call: RequestContext, id: BulkId) -> BulkView:
    """Changes that were made are kept."""
    return answer(call, await get_bulk(call).abort(int(id)))


@bulk_actions.add("POST", "/v1/messages/{reference:path}/move", "Move a message", ReplacedMessage,
                  takes=MoveRequest, scoped=True, example={"queue": "mail"})  # fmt: skip
async def move_message(
    call: RequestContext, reference: Reference, where: MoveRequest
) -> ReplacedMessage:
    """Moves a ready, scheduled or dead message to another queue. It gets a new id there, and the
    old one ends as cancelled with the reason `moved`."""
    record = await call.admin.get(reference, scope=call.scope)
    home = await call.broker.get_queue_by_id(record.message.queue_id)
    scope = where.to_scope or home.scope.name
    call.caller.access.check(Right.PUBLISH, scope, where.queue)
    refuse_shell(call, record.message.type, where.queue)
    published = await call.admin.move(
        record.message.id, where.queue, to_scope=scope, scope=call.scope
    )
    call.service.wake_tail()
    return ReplacedMessage(str(published.id), str(record.message.id))


@bulk_actions.add("POST", "/v1/messages/{reference:path}/edit", "Edit a message", ReplacedMessage,
                  takes=EditRequest, scoped=True,
                  example={"body": {"to": "ada@example.org"}})  # fmt: skip
async def edit_message(
    call: RequestContext, reference: Reference, edited: EditRequest
) -> ReplacedMessage:
    """Replaces a ready, scheduled or dead message by one with another body. The old one ends as
    cancelled with the reason `replaced`."""
    record = await call.admin.get(reference, scope=call.scope)
    queue = await call.broker.get_queue_by_id(record.message.queue_id)
    refuse_shell(call, record.message.type, queue.name)
    body = decode_body(edited.body, edited.body_base64)
    published = await call.admin.edit(record.message.id, body, scope=call.scope)
    call.service.wake_tail()
    return ReplacedMessage(str(published.id), str(record.message.id))


@bulk_actions.add("POST", "/v1/messages/{reference:path}/reprioritise", "Reprioritise a message",
                  ReprioritisedMessage, takes=ReprioritiseRequest, scoped=True,
                  example={"priority": 9})  # fmt: skip
async def reprioritise_message(
    call: RequestContext, reference: Reference, new: ReprioritiseRequest
) -> ReprioritisedMessage:
    """Moves a ready or scheduled message in its queue, through all its retries. The message keeps
    the priority that it was published with."""
    record = await call.admin.get(reference, scope=call.scope)
    await call.admin.reprioritise(record.message.id, new.priority, scope=call.scope)
    return ReprioritisedMessage(str(record.message.id), new.priority)
