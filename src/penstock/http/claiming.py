"""Claims over HTTP: in line with others, and given back if nobody is there to take them."""

import time
from datetime import UTC, datetime
from typing import Any

from penstock.access import Right
from penstock.consumer import Taken
from penstock.http.call import Call
from penstock.http.counts import SECOND
from penstock.http.events import Event, Told
from penstock.http.metrics import tally
from penstock.http.parking import Waiter, Wish, give_back
from penstock.message import PLAIN, Leased, Meta
from penstock.wire.consume import Claim, Deliveries, Delivery
from penstock.wire.texts import time_at, time_of, told

# Messages of one claim whose waits are measured.
SAMPLE = 10


async def claim(call: Call, sent: Claim) -> Deliveries:
    waiter = call.service.parking.join(
        call.broker,
        wish_of(call, sent),
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
    tell(call, taken, waiter)
    return Deliveries([delivery_of(call, each) for each in taken.messages], taken.queues)


def wish_of(call: Call, sent: Claim) -> Wish:
    for want in sent.queues:
        call.check(Right.CONSUME, want.queue)
    return Wish(
        call.caller.tenant,
        call.scope,
        tuple((want.queue, call.caller.fitting(want.types)) for want in sent.queues),
        sent.lease,
        sent.begins,
        sent.merge,
    )


def delivery_of(call: Call, message: Leased) -> Delivery:
    meta = message.meta
    body, base64 = told(message.body)
    return Delivery(
        str(message.id),
        call.service.tokens.sign(message.id, message.fence, call.caller.holder),
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
