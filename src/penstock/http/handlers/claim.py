"""The claim operation: long polls, and releases messages if the client has disconnected."""

import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any

from penstock.broker.interfaces.broker import ClaimResult
from penstock.errors import Forbidden, PenstockError
from penstock.http.context import RequestContext
from penstock.http.events.hub import EncodedEvent, Event
from penstock.http.lock_tokens import HeldLock
from penstock.http.long_poll import ClaimKey, Waiter, give_back
from penstock.http.metrics.prometheus import count_values
from penstock.model.fields import copy_message_fields
from penstock.model.message import MICROS_PER_SECOND, PLAIN, Flag, Leased, Meta
from penstock.model.queue import DEAD_LETTER
from penstock.rules.access import Right
from penstock.rules.events import CLAIMED
from penstock.wire.consume import ClaimRequest, Deliveries, Delivery, SeenAnswer, SeenRequest
from penstock.wire.fields import encode_body, to_datetime, to_optional_datetime

# How many messages of one claim are measured for penstock_wait_seconds.
WAIT_SAMPLE_SIZE = 10
# A claim that waited longer is authorized again before it gets messages.
RIGHTS_HOLD_S = 1.0


def claim(call: RequestContext, sent: ClaimRequest) -> Awaitable[Deliveries]:
    return wait_for_messages(call, sent) if sent.wait <= 0 else claim_waiting(call, sent)


async def claim_waiting(call: RequestContext, sent: ClaimRequest) -> Deliveries:
    with call.service.waiting_claims.hold(call.caller):
        return await wait_for_messages(call, sent)


async def wait_for_messages(call: RequestContext, sent: ClaimRequest) -> Deliveries:
    key, began = await make_claim_key(call, sent), time.monotonic()
    waiter = call.service.long_poller.join(
        call.broker, key, sent.consumer or call.caller.subject, sent.limit, sent.wait
    )
    call.responder.watch(waiter.give_up)
    try:
        taken = await waiter.future
    finally:
        left = call.responder.stop_watching()
        waiter.leave()
    if left:
        await give_back(call.broker, taken.messages)
        return Deliveries([], taken.queues)
    if taken.messages and time.monotonic() - began > RIGHTS_HOLD_S:
        await check_again(call, sent, key, taken)
    record_claim(call, taken, waiter)
    return Deliveries([make_delivery(call, each) for each in taken.messages], taken.queues)


async def ask_seen(call: RequestContext, sent: SeenRequest) -> SeenAnswer:
    """A consumer that may get one event twice asks before it acts, and gives the key when it
    completes the message. Keys belong to the queue and are kept for a day."""
    call.check(Right.CONSUME, sent.queue)
    id = await call.broker.seen(sent.queue, sent.key, scope=call.scope)
    return SeenAnswer(id is not None, None if id is None else str(id))


async def check_again(
    call: RequestContext, sent: ClaimRequest, key: ClaimKey, taken: ClaimResult
) -> None:
    """Releases the messages if the caller lost rights while the claim waited."""
    try:
        call.caller = await call.service.authenticator.recognise(call.asgi_scope)
        if lost_rights(key, await make_claim_key(call, sent), taken):
            raise Forbidden("permissions changed while the claim waited; claim again")
    except PenstockError:
        await give_back(call.broker, taken.messages)
        raise


def lost_rights(before: ClaimKey, now: ClaimKey, taken: ClaimResult) -> bool:
    """True if the caller lost a type, or the right on a queue whose dead letter was claimed."""
    dead = now.dead_of
    return before.wants != now.wants or any(
        message.flags & Flag.FROM_DEAD and dead is not None and message.queue_id not in dead
        for message in taken.messages
    )


async def make_claim_key(call: RequestContext, sent: ClaimRequest) -> ClaimKey:
    for want in sent.queues:
        call.check(Right.CONSUME, want.queue)
    from_dead = any(want.queue == DEAD_LETTER for want in sent.queues)
    return ClaimKey(
        call.caller.tenant,
        call.scope,
        tuple((want.queue, call.caller.filter_types(want.types)) for want in sent.queues),
        sent.visibility_timeout_s if sent.lease is None else sent.lease,
        sent.begins,
        sent.merge,
        await dead_queues(call) if from_dead else None,
    )


async def dead_queues(call: RequestContext) -> tuple[int, ...] | None:
    """Returns the queues whose dead letters the caller may claim. None means all of the scope."""
    allows = call.caller.access.allows
    if allows(Right.CONSUME, call.scope):
        return None
    found = tuple(
        queue.id
        for queue in await call.broker.list_queues()
        if queue.scope.name == call.scope
        and not queue.system
        and allows(Right.CONSUME, call.scope, queue.name)
    )
    if not found:
        raise Forbidden(f"caller may not consume from any queue of scope {call.scope!r}")
    return found


def make_delivery(call: RequestContext, message: Leased) -> Delivery:
    meta = message.meta
    body, base64 = encode_body(message.body)
    return Delivery(
        str(message.id),
        call.service.tokens.sign(make_lock(message), call.caller.holder),
        call.service.directory.by_id[message.queue_id].name,
        message.type,
        message.priority,
        message.attempts,
        message.deliveries,
        to_datetime(message.created_at),
        to_datetime(message.lease_until),
        body,
        base64,
        message.fence,
        message.suspect,
        bool(message.flags & Flag.STEPS),
        **({} if meta is PLAIN else list_rare_fields(meta)),
    )


def make_lock(message: Leased) -> HeldLock:
    from_dead = bool(message.flags & Flag.FROM_DEAD)
    return HeldLock(message.id, message.fence, message.queue_id, from_dead)


def list_rare_fields(meta: Meta) -> dict[str, Any]:
    """Returns the optional fields, which few messages have."""
    return {
        "deadline": to_optional_datetime(meta.deadline),
        "parent_id": None if meta.parent_id is None else str(meta.parent_id),
        **copy_message_fields(meta),
    }


def record_claim(call: RequestContext, taken: ClaimResult, waiter: Waiter) -> None:
    """Updates metrics and publishes live events. Claims have no history row to tail."""
    metrics, queues = call.service.metrics, call.service.directory.by_id
    for queue_id, count in count_values([each.queue_id for each in taken.messages]):
        metrics.claimed.add(metrics.queue(queues[queue_id].name), by=count)
    for message in taken.messages[:: len(taken.messages) // WAIT_SAMPLE_SIZE + 1]:
        if message.deliveries == 1:
            waited = max(0.0, time.time() - message.created_at / MICROS_PER_SECOND)
            metrics.waits.add(metrics.queue(queues[message.queue_id].name), waited)
    if call.service.hub.listeners:
        is_news = call.service.lease_watcher.ledger.note_claim
        call.service.hub.send(
            [
                make_claimed_event(call, each, waiter)
                for each in taken.messages
                if is_news(each.id, each.fence, each.lease_until)
            ]
        )


def make_claimed_event(call: RequestContext, message: Leased, waiter: Waiter) -> EncodedEvent:
    event = Event(
        CLAIMED, datetime.now(UTC), call.scope,
        call.service.directory.by_id[message.queue_id].name, str(message.id),
        message.type, "claimed", message.attempts, waiter.consumer,
        correlation_id=message.meta.correlation_id,
    )  # fmt: skip
    return EncodedEvent(event, call.caller.tenant)
