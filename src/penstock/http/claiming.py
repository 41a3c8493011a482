"""Claims over HTTP: in line with others, and given back if nobody is there to take them."""

import time
from datetime import UTC, datetime
from typing import Any

from penstock.access import Right
from penstock.consumer import Taken
from penstock.errors import Forbidden, PenstockError
from penstock.http.call import Call
from penstock.http.counts import SECOND
from penstock.http.events import Event, Told
from penstock.http.metrics import tally
from penstock.http.parking import Waiter, Wish, give_back
from penstock.http.tokens import HeldLock
from penstock.message import PLAIN, Flag, Leased, Meta
from penstock.queue import DEAD_LETTER
from penstock.wire.consume import Claim, Deliveries, Delivery
from penstock.wire.texts import time_at, time_of, told

# Messages of one claim whose waits are measured.
SAMPLE = 10
# Seconds for which a waiting claim goes by the rights that it came with.
RIGHTS_HOLD_S = 1.0


async def claim(call: Call, sent: Claim) -> Deliveries:
    wish, began = await wish_of(call, sent), time.monotonic()
    waiter = call.service.parking.join(
        call.broker,
        wish,
        sent.consumer or call.caller.subject,
        sent.limit,
        sent.wait,
    )
    call.whole.watch(waiter.give_up)
    try:
        taken = await waiter.future
    finally:
        left = call.whole.unwatch()
        waiter.leave()
    if left:
        await give_back(call.broker, taken.messages)
        return Deliveries([], taken.queues)
    if taken.messages and time.monotonic() - began > RIGHTS_HOLD_S:
        await check_again(call, sent, wish, taken)
    tell(call, taken, waiter)
    return Deliveries([delivery_of(call, each) for each in taken.messages], taken.queues)


async def check_again(call: Call, sent: Claim, wish: Wish, taken: Taken) -> None:
    """Gives the messages back if rights were taken away while the claim waited."""
    try:
        call.caller = await call.service.gate.recognise(call.asgi_scope)
        if lost_rights(wish, await wish_of(call, sent), taken):
            raise Forbidden("the rights of this caller changed while it waited; claim again")
    except PenstockError:
        await give_back(call.broker, taken.messages)
        raise


def lost_rights(before: Wish, now: Wish, taken: Taken) -> bool:
    """Types of the claim, or the right on a queue whose dead letter was taken."""
    dead = now.dead_of
    return before.wants != now.wants or any(
        message.flags & Flag.FROM_DEAD and dead is not None and message.queue_id not in dead
        for message in taken.messages
    )


async def wish_of(call: Call, sent: Claim) -> Wish:
    for want in sent.queues:
        call.check(Right.CONSUME, want.queue)
    from_dead = any(want.queue == DEAD_LETTER for want in sent.queues)
    return Wish(
        call.caller.tenant,
        call.scope,
        tuple((want.queue, call.caller.fitting(want.types)) for want in sent.queues),
        sent.lease,
        sent.begins,
        sent.merge,
        await dead_queues(call) if from_dead else None,
    )


async def dead_queues(call: Call) -> tuple[int, ...] | None:
    """The queues whose dead letters this caller may claim; None is all of the scope."""
    allows = call.caller.access.allows
    if allows(Right.CONSUME, call.scope):
        return None
    found = tuple(
        queue.id
        for queue in await call.broker.directory.all()
        if (queue.scope.tenant, queue.scope.name) == (call.caller.tenant, call.scope)
        and not queue.system
        and allows(Right.CONSUME, call.scope, queue.name)
    )
    if not found:
        raise Forbidden(f"this caller may consume from no queue of scope {call.scope!r}")
    return found


def delivery_of(call: Call, message: Leased) -> Delivery:
    meta = message.meta
    body, base64 = told(message.body)
    return Delivery(
        str(message.id),
        call.service.tokens.sign(held_lock(message), call.caller.holder),
        call.broker.directory.by_id[message.queue_id].name,
        message.type,
        message.priority,
        message.attempts,
        message.deliveries,
        time_at(message.created_at),
        time_at(message.lease_until),
        body,
        base64,
        meta.content_type,
        message.fence,
        message.suspect,
        *(() if meta is PLAIN else further(meta)),
    )


def held_lock(message: Leased) -> HeldLock:
    from_dead = bool(message.flags & Flag.FROM_DEAD)
    return HeldLock(message.id, message.fence, message.queue_id, from_dead)


def further(meta: Meta) -> tuple[Any, ...]:
    """What few messages have."""
    return (
        meta.name,
        meta.headers,
        meta.labels,
        time_of(meta.deadline),
        meta.timeout,
        meta.lease,
        meta.max_attempts,
        meta.max_deliveries,
        meta.ordering_key,
        meta.correlation_id,
        meta.causation_id,
        None if meta.parent_id is None else str(meta.parent_id),
        meta.traceparent,
    )


def tell(call: Call, taken: Taken, waiter: Waiter) -> None:
    """Counts them; a claim is told live only, since history has no row of it."""
    metrics, queues = call.service.metrics, call.broker.directory.by_id
    for queue_id, count in tally([each.queue_id for each in taken.messages]):
        metrics.claimed.add(metrics.queue(queues[queue_id].name), by=count)
    for message in taken.messages[:: len(taken.messages) // SAMPLE + 1]:
        if message.deliveries == 1:
            waited = max(0.0, time.time() - message.created_at / SECOND)
            metrics.waits.add(metrics.queue(queues[message.queue_id].name), waited)
    if call.service.hub.listeners:
        call.service.hub.tell([claimed(call, each, waiter) for each in taken.messages])


def claimed(call: Call, message: Leased, waiter: Waiter) -> Told:
    event = Event(
        "message.claimed", datetime.now(UTC), call.scope,
        call.broker.directory.by_id[message.queue_id].name, str(message.id),
        message.type, "claimed", message.attempts, waiter.consumer,
        correlation_id=message.meta.correlation_id,
    )  # fmt: skip
    return Told(event, call.caller.tenant)
