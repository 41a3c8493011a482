"""Routes for webhook subscriptions to queues."""

from typing import Annotated

from fastapi import Path

from penstock.http.context import RequestContext
from penstock.http.routing import Called, RouteTable, make_body_dependency
from penstock.rules.access import Right
from penstock.rules.callbacks import check_url
from penstock.rules.subscriptions import WebhookSubscription
from penstock.webhooks.subscriptions import StoredSubscription
from penstock.wire.webhooks import (
    NewSubscription,
    Subscriptions,
    SubscriptionView,
    make_subscription_view,
)

subscriptions = RouteTable("subscriptions")
SubscriptionId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@subscriptions.add(
    "GET", "/v1/subscriptions", "List subscriptions", Subscriptions, right=Right.CONSUME
)
async def list_subscriptions(call: Called) -> Subscriptions:
    found = await call.service.subscribers.list_for(call.caller.tenant, call.scope)
    return Subscriptions([make_view(each) for each in found if may_see(call, each)])


@subscriptions.add(
    "POST", "/v1/subscriptions", "Create a subscription", SubscriptionView,
    takes=NewSubscription, status=201, right=Right.CONSUME,
    example={"url": "https://example.org/wake", "queues": ["mail"], "mode": "group", "group": "a"},
)  # fmt: skip
async def subscribe(
    call: Called, new: Annotated[NewSubscription, make_body_dependency(NewSubscription)]
) -> SubscriptionView:
    check_url("url", new.url)
    call.service.limits.reach.refuse("url", new.url)
    names = tuple(dict.fromkeys(new.queues))
    subscription = WebhookSubscription(
        id="",
        tenant=call.caller.tenant,
        scope=call.scope,
        url=new.url,
        queues=names,
        types=call.caller.filter_types(dict.fromkeys(new.types)),
        mode=new.mode,
        group=new.group,
        ttl=new.ttl,
        min_interval=new.min_interval,
    )
    found = [await call.admin.queue(name, scope=call.scope) for name in names]
    return make_view(await call.service.subscribers.add(subscription, found))


@subscriptions.add(
    "POST", "/v1/subscriptions/{id}/heartbeat", "Renew a subscription", SubscriptionView,
    right=Right.CONSUME,
)  # fmt: skip
async def renew_subscription(call: Called, id: SubscriptionId) -> SubscriptionView:
    await check_own(call, id)
    return make_view(await call.service.subscribers.renew(call.caller.tenant, call.scope, id))


@subscriptions.add(
    "DELETE", "/v1/subscriptions/{id}", "Delete a subscription", None, status=204,
    right=Right.CONSUME,
)  # fmt: skip
async def unsubscribe(call: Called, id: SubscriptionId) -> None:
    await check_own(call, id)
    await call.service.subscribers.delete(id)


async def check_own(call: RequestContext, id: str) -> None:
    """Checks that the subscription exists and the caller may consume from its queues."""
    kept = await call.service.subscribers.get(call.caller.tenant, call.scope, id)
    for queue in kept.subscription.queues:
        call.check(Right.CONSUME, queue)


def may_see(call: RequestContext, kept: StoredSubscription) -> bool:
    return all(call.allows(call.scope, queue) for queue in kept.subscription.queues)


def make_view(kept: StoredSubscription) -> SubscriptionView:
    return make_subscription_view(kept.subscription, kept.expires_at)
