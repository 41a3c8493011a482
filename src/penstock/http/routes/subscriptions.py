"""Subscriptions to the work of queues: whoever has one is told when there is some."""

from typing import Annotated

from fastapi import Path

from penstock.access import Right
from penstock.callback import check_url
from penstock.http.call import Call
from penstock.http.route import Called, Routes, sent
from penstock.http.subscribers import Kept
from penstock.notice import Subscription
from penstock.wire.subscriptions import (
    NewSubscription,
    Subscriptions,
    SubscriptionTold,
    told_of,
)

subscriptions = Routes("subscriptions")
SubscriptionId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@subscriptions.add(
    "GET", "/v1/subscriptions", "List subscriptions", Subscriptions, right=Right.CONSUME
)
async def list_subscriptions(call: Called) -> Subscriptions:
    found = await call.service.subscribers.of(call.caller.tenant, call.scope)
    return Subscriptions([told(each) for each in found if seen(call, each)])


@subscriptions.add(
    "POST", "/v1/subscriptions", "Be told when there is work", SubscriptionTold,
    takes=NewSubscription, status=201, right=Right.CONSUME,
    example={"url": "https://example.org/wake", "queues": ["mail"], "mode": "group", "group": "a"},
)  # fmt: skip
async def subscribe(
    call: Called, new: Annotated[NewSubscription, sent(NewSubscription)]
) -> SubscriptionTold:
    check_url("url", new.url)
    call.service.limits.reach.refuse("url", new.url)
    names = tuple(dict.fromkeys(new.queues))
    subscription = Subscription(
        id="",
        tenant=call.caller.tenant,
        scope=call.scope,
        url=new.url,
        queues=names,
        types=call.caller.fitting(dict.fromkeys(new.types)),
        mode=new.mode,
        group=new.group,
        ttl=new.ttl,
        min_interval=new.min_interval,
    )
    found = [await call.admin.queue(name, scope=call.scope) for name in names]
    return told(await call.service.subscribers.add(subscription, found))


@subscriptions.add(
    "POST", "/v1/subscriptions/{id}/heartbeat", "Keep a subscription alive", SubscriptionTold,
    right=Right.CONSUME,
)  # fmt: skip
async def beat(call: Called, id: SubscriptionId) -> SubscriptionTold:
    await own(call, id)
    return told(await call.service.subscribers.beat(call.caller.tenant, call.scope, id))


@subscriptions.add(
    "DELETE", "/v1/subscriptions/{id}", "End a subscription", None, status=204,
    right=Right.CONSUME,
)  # fmt: skip
async def unsubscribe(call: Called, id: SubscriptionId) -> None:
    await own(call, id)
    await call.service.subscribers.delete(id)


async def own(call: Call, id: str) -> None:
    """There is such a one, and it is of queues that this caller may claim from."""
    kept = await call.service.subscribers.get(call.caller.tenant, call.scope, id)
    for queue in kept.subscription.queues:
        call.check(Right.CONSUME, queue)


def seen(call: Call, kept: Kept) -> bool:
    return all(call.allows(call.scope, queue) for queue in kept.subscription.queues)


def told(kept: Kept) -> SubscriptionTold:
    return told_of(kept.subscription, kept.expires_at)
