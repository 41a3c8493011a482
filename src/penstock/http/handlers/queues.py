"""Operations on scopes and queues."""

from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated

from msgspec import Meta

from penstock.broker.scopes import ScopeAdmin, ScopeDetails
from penstock.errors import NotFound
from penstock.http.auth.principal import RightScope
from penstock.http.context import RequestContext, cut_page
from penstock.http.events.hub import EncodedEvent, Event
from penstock.http.operations import OperationTable
from penstock.model.queue import Queue, QueueState
from penstock.model.structs import copy_fields
from penstock.rules.access import Right
from penstock.wire.fields import Cursor, Name, PageLimit, to_optional_moment
from penstock.wire.queues import (
    ChangeQueue,
    DescribeScope,
    EnsureQueue,
    NewQueue,
    NewScope,
    PruneRequest,
    PruneResult,
    Purged,
    PurgeRequest,
    Queues,
    QueueView,
    RenameRequest,
    Scopes,
    ScopeState,
    make_queue_view,
)

scopes = OperationTable("scopes", scoped=False)
queues = OperationTable("queues")
QUEUE_NAME = attrgetter("name")


def get_scopes(call: RequestContext) -> ScopeAdmin:
    return ScopeAdmin(call.admin)


def make_scope_view(scope: ScopeDetails) -> ScopeState:
    return copy_fields(ScopeState, scope, paused=scope.state != "active")


@scopes.add("GET", "/v1/scopes", "List scopes", Scopes)
async def list_scopes(
    call: RequestContext, limit: PageLimit = 1_000, cursor: Cursor | None = None
) -> Scopes:
    found = await get_scopes(call).list_scopes()
    page, next_cursor = cut_page(call, found, QUEUE_NAME, limit, cursor, "scopes")
    return Scopes([make_scope_view(each) for each in page], next_cursor)


@scopes.add(
    "POST", "/v1/scopes", "Create a scope", ScopeState, takes=NewScope, status=201,
    extent=RightScope.SCOPE, example={"name": "orders"},
)  # fmt: skip
async def create_scope(call: RequestContext, new: NewScope) -> ScopeState:
    call.act_in(new.name)
    await call.admin.create_scope(new.name)
    described = await get_scopes(call).ensure(
        new.name, display_name=new.display_name, description=new.description
    )
    return make_scope_view(described)


@scopes.add("GET", "/v1/scopes/{name}", "Get a scope", ScopeState, extent=RightScope.SCOPE)
async def get_scope(call: RequestContext, name: Name) -> ScopeState:
    return make_scope_view(await get_scopes(call).get(name))


@scopes.add(
    "PUT", "/v1/scopes/{name}", "Create or update a scope", ScopeState, takes=DescribeScope,
    extent=RightScope.SCOPE, example={"display_name": "Orders"},
)  # fmt: skip
async def ensure_scope(call: RequestContext, name: Name, new: DescribeScope) -> ScopeState:
    """Creates the scope if it is missing. Repeating the request changes nothing."""
    call.act_in(name)
    described = await get_scopes(call).ensure(
        name, display_name=new.display_name, description=new.description
    )
    return make_scope_view(described)


@scopes.add(
    "POST", "/v1/scopes/{name}/pause", "Pause a scope", ScopeState,
    extent=RightScope.SCOPE,
)  # fmt: skip
async def pause_scope(call: RequestContext, name: Name) -> ScopeState:
    """Stops deliveries from all queues of the scope."""
    return await switch_scope(call, name, paused=True)


@scopes.add(
    "POST", "/v1/scopes/{name}/resume", "Resume a scope", ScopeState, extent=RightScope.SCOPE
)
async def resume_scope(call: RequestContext, name: Name) -> ScopeState:
    return await switch_scope(call, name, paused=False)


@scopes.add("POST", "/v1/scopes/{name}/archive", "Archive a scope", ScopeState,
            extent=RightScope.SCOPE)  # fmt: skip
async def archive_scope(call: RequestContext, name: Name) -> ScopeState:
    """Stops publishing to all queues of the scope, and deliveries from them."""
    call.act_in(name)
    archived = await get_scopes(call).archive(name)
    send_event(call, "scope.changed", name, "")
    return make_scope_view(archived)


@scopes.add("POST", "/v1/scopes/{name}/unarchive", "Unarchive a scope", ScopeState,
            extent=RightScope.SCOPE)  # fmt: skip
async def unarchive_scope(call: RequestContext, name: Name) -> ScopeState:
    call.act_in(name)
    unarchived = await get_scopes(call).unarchive(name)
    send_event(call, "scope.changed", name, "")
    return make_scope_view(unarchived)


async def switch_scope(call: RequestContext, name: str, *, paused: bool) -> ScopeState:
    call.act_in(name)
    await call.admin.pause_scope(name, paused=paused)
    send_event(call, "scope.changed", name, "")
    return make_scope_view(await get_scopes(call).get(name))


@queues.add("GET", "/v1/queues", "List queues", Queues)
async def list_queues(
    call: RequestContext, limit: PageLimit = 1_000, cursor: Cursor | None = None
) -> Queues:
    found = await call.admin.queues(scope=call.scope)
    if not found:
        raise NotFound(f"no scope named {call.scope!r}")
    page, next_cursor = cut_page(call, found, QUEUE_NAME, limit, cursor, "queues")
    return Queues([make_queue_view(queue) for queue in page], next_cursor)


@queues.add(
    "POST", "/v1/queues", "Create a queue", QueueView, takes=NewQueue, status=201,
    example={"name": "mail", "settings": {"max_attempts": 3, "backoff": {"initial": 5}}},
)  # fmt: skip
async def create_queue(call: RequestContext, new: NewQueue) -> QueueView:
    queue = await call.admin.create_queue(
        new.name, preset_name=new.preset, scope=call.scope, **new.settings
    )
    return announce_change(call, queue)


@queues.add(
    "PUT", "/v1/queues/{queue}", "Create or update a queue", QueueView,
    takes=EnsureQueue, example={"settings": {"max_attempts": 3}},
)  # fmt: skip
async def ensure_queue(call: RequestContext, queue: Name, new: EnsureQueue) -> QueueView:
    """Gives the queue exactly these settings. Repeating the request changes nothing."""
    ensured = await call.admin.ensure_queue(
        queue, preset_name=new.preset, scope=call.scope, **new.settings
    )
    return announce_change(call, ensured)


@queues.add("GET", "/v1/queues/{queue}", "Get a queue", QueueView, right=None)
async def get_queue(call: RequestContext, queue: Name) -> QueueView:
    """Requires the right to read, publish to or consume from the queue."""
    sees = call.caller.access.allows
    if not any(sees(right, call.scope, queue) for right in (Right.PUBLISH, Right.CONSUME)):
        call.check(Right.READ, queue)
    return make_queue_view(await call.broker.admin.queue(queue, scope=call.scope))


@queues.add(
    "PATCH", "/v1/queues/{queue}", "Update the settings of a queue", QueueView, takes=ChangeQueue,
    example={"settings": {"lease": 60}},
)  # fmt: skip
async def update_queue(call: RequestContext, queue: Name, change: ChangeQueue) -> QueueView:
    set_queue = call.admin.set_queue
    return announce_change(call, await set_queue(queue, scope=call.scope, **change.settings))


@queues.add("POST", "/v1/queues/{queue}/pause", "Pause a queue", QueueView)
async def pause_queue(call: RequestContext, queue: Name) -> QueueView:
    """Stops deliveries. The queue still accepts messages."""
    return await switch(call, queue, QueueState.PAUSED)


@queues.add("POST", "/v1/queues/{queue}/resume", "Resume a queue", QueueView)
async def resume_queue(call: RequestContext, queue: Name) -> QueueView:
    """Accepts and delivers messages again."""
    return await switch(call, queue, QueueState.ACTIVE)


@queues.add("POST", "/v1/queues/{queue}/drain", "Drain a queue", QueueView)
async def drain_queue(call: RequestContext, queue: Name) -> QueueView:
    """Refuses new messages and delivers the remaining ones."""
    return await switch(call, queue, QueueState.DRAINING)


@queues.add("POST", "/v1/queues/{queue}/archive", "Archive a queue", QueueView)
async def archive_queue(call: RequestContext, queue: Name) -> QueueView:
    """Refuses new messages and stops deliveries."""
    return await switch(call, queue, QueueState.ARCHIVED)


@queues.add(
    "POST", "/v1/queues/{queue}/rename", "Rename a queue", QueueView, takes=RenameRequest,
    example={"name": "letters"},
)  # fmt: skip
async def rename_queue(call: RequestContext, queue: Name, new: RenameRequest) -> QueueView:
    return announce_change(call, await call.admin.rename_queue(queue, new.name, scope=call.scope))


@queues.add(
    "POST", "/v1/queues/{queue}/purge", "Purge a queue", Purged, takes=PurgeRequest,
    example={"places": ["ready", "scheduled"], "limit": 1000},
)  # fmt: skip
async def purge_queue(call: RequestContext, queue: Name, purge: PurgeRequest) -> Purged:
    """Ends messages as cancelled."""
    places = dict.fromkeys(purge.places)
    purged = await call.admin.purge(queue, *places, limit=purge.limit, scope=call.scope)
    call.service.wake_tail()
    return Purged(purged)


@queues.add(
    "POST", "/v1/queues/{queue}/prune", "Prune finished messages", PruneResult, takes=PruneRequest,
    example={"before": "2026-11-01T00:00:00Z", "limit": 1000},
)  # fmt: skip
async def prune_queue(call: RequestContext, queue: Name, prune: PruneRequest) -> PruneResult:
    """Deletes finished messages before their retention is over."""
    before = to_optional_moment(prune.before)
    pruned = await call.admin.prune(queue, before=before, limit=prune.limit, scope=call.scope)
    return PruneResult(pruned.count, pruned.more)


@queues.add("DELETE", "/v1/queues/{queue}", "Delete a queue", None, status=204)
async def delete_queue(
    call: RequestContext,
    queue: Name,
    force: Annotated[bool, Meta(description="Cancel its messages first.")] = False,
) -> None:
    await call.admin.delete_queue(queue, force=force, scope=call.scope)
    send_event(call, "queue.deleted", call.scope, queue)


async def switch(call: RequestContext, name: str, state: QueueState) -> QueueView:
    return announce_change(call, await call.admin.set_state(name, state, scope=call.scope))


def announce_change(call: RequestContext, queue: Queue) -> QueueView:
    send_event(call, "queue.changed", call.scope, queue.name, queue.state.value)
    return make_queue_view(queue)


def send_event(
    call: RequestContext, kind: str, scope: str, queue: str, state: str | None = None
) -> None:
    """Publishes an event and wakes waiting claims."""
    call.service.long_poller.wake()
    event = Event(kind, datetime.now(UTC), scope, queue, state=state)
    call.service.hub.send((EncodedEvent(event, call.caller.tenant),))
