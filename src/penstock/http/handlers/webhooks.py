"""Operations on webhooks: subscriptions to queues, callbacks and their signing secret."""

from operator import attrgetter
from typing import Annotated

from msgspec import Meta

from penstock.http.auth.principal import RightScope
from penstock.http.context import RequestContext, cut_page
from penstock.http.operations import OperationTable
from penstock.model.structs import copy_fields
from penstock.rules.access import Right
from penstock.rules.callbacks import check_url
from penstock.rules.subscriptions import WebhookSubscription
from penstock.webhooks.subscriptions import StoredSubscription
from penstock.wire.fields import Cursor, PageLimit, Reference
from penstock.wire.records import MessagePage
from penstock.wire.webhooks import (
    CallbackSecret,
    NewSubscription,
    Subscriptions,
    SubscriptionView,
    make_secret_view,
    make_subscription_view,
)

subscriptions = OperationTable("subscriptions")
callbacks = OperationTable("callbacks")
SubscriptionId = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}$")]


@subscriptions.add(
    "GET", "/v1/subscriptions", "List subscriptions", Subscriptions, right=Right.CONSUME
)
async def list_subscriptions(
    call: RequestContext, limit: PageLimit = 1_000, cursor: Cursor | None = None
) -> Subscriptions:
    found = await call.service.subscribers.list_for(call.caller.tenant, call.scope)
    seen = [each for each in found if may_see(call, each)]
    by_id = attrgetter("subscription.id")
    page, next_cursor = cut_page(call, seen, by_id, limit, cursor, "subscriptions")
    return Subscriptions([make_view(each) for each in page], next_cursor)


@subscriptions.add(
    "POST", "/v1/subscriptions", "Create a subscription", SubscriptionView,
    takes=NewSubscription, status=201, right=Right.CONSUME,
    example={"url": "https://example.org/wake", "queues": ["mail"], "mode": "group", "group": "a"},
)  # fmt: skip
async def create_subscription(call: RequestContext, new: NewSubscription) -> SubscriptionView:
    check_url("url", new.url)
    call.service.limits.reach.refuse("url", new.url)
    names = tuple(dict.fromkeys(new.queues))
    subscription = copy_fields(
        WebhookSubscription,
        new,
        id="",
        tenant=call.caller.tenant,
        scope=call.scope,
        queues=names,
        types=call.caller.filter_types(dict.fromkeys(new.types)),
    )
    found = [await call.admin.queue(name, scope=call.scope) for name in names]
    return make_view(await call.service.subscribers.add(subscription, found))


@subscriptions.add(
    "POST", "/v1/subscriptions/{id}/heartbeat", "Renew a subscription", SubscriptionView,
    right=Right.CONSUME,
)  # fmt: skip
async def renew_subscription(call: RequestContext, id: SubscriptionId) -> SubscriptionView:
    await check_own(call, id)
    return make_view(await call.service.subscribers.renew(call.caller.tenant, call.scope, id))


@subscriptions.add(
    "DELETE", "/v1/subscriptions/{id}", "Delete a subscription", None, status=204,
    right=Right.CONSUME,
)  # fmt: skip
async def delete_subscription(call: RequestContext, id: SubscriptionId) -> None:
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


@callbacks.add(
    "GET", "/v1/messages/{reference:path}/callbacks", "List callbacks of a message", MessagePage
)
async def list_callbacks(call: RequestContext, reference: Reference) -> MessagePage:
    """Each callback is a message: `due_at` is its next attempt, `timeline` lists all attempts."""
    found = await call.admin.callbacks(reference, scope=call.scope)
    return MessagePage([await call.view(record, timeline=True) for record in found])


@callbacks.add(
    "GET", "/v1/callbacks/secret", "Get the callback signing secret", CallbackSecret,
    right=Right.ACCESS, extent=RightScope.TENANT, scoped=False,
)  # fmt: skip
async def get_callback_secret(call: RequestContext) -> CallbackSecret:
    return make_secret_view(await call.service.signing.secrets(call.caller.tenant))


@callbacks.add(
    "POST", "/v1/callbacks/secret/rotate", "Rotate the callback signing secret", CallbackSecret,
    right=Right.ACCESS, extent=RightScope.TENANT, scoped=False,
)  # fmt: skip
async def rotate_callback_secret(call: RequestContext) -> CallbackSecret:
    """The previous secret stays valid for a day."""
    return make_secret_view(await call.service.signing.rotate(call.caller.tenant))
