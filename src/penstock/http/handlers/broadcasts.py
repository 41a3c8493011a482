"""Operations on the durable subscriptions of broadcast queues."""

from penstock.broker.broadcast.subscriptions import Broadcasts
from penstock.http.context import RequestContext
from penstock.http.operations import OperationTable
from penstock.wire.broadcasts import (
    BroadcastSubscriptions,
    BroadcastSubscriptionView,
    NewBroadcastSubscription,
    Unsubscribed,
    make_broadcast_view,
    read_start,
)
from penstock.wire.fields import Name

broadcasts = OperationTable("broadcasts")
PATH = "/v1/queues/{queue}/subscriptions"


@broadcasts.add("GET", PATH, "List durable subscriptions", BroadcastSubscriptions)
async def list_durable_subscriptions(call: RequestContext, queue: Name) -> BroadcastSubscriptions:
    """Lists the subscriptions of a broadcast queue."""
    found = await Broadcasts(call.admin).list_subscriptions(queue, scope=call.scope)
    return BroadcastSubscriptions([make_broadcast_view(queue, each) for each in found])


@broadcasts.add("GET", f"{PATH}/{{name}}", "Get a durable subscription", BroadcastSubscriptionView)
async def get_durable_subscription(
    call: RequestContext, queue: Name, name: Name
) -> BroadcastSubscriptionView:
    found = await Broadcasts(call.admin).get(queue, name, scope=call.scope)
    return make_broadcast_view(queue, found)


@broadcasts.add(
    "PUT", f"{PATH}/{{name}}", "Save a durable subscription", BroadcastSubscriptionView,
    takes=NewBroadcastSubscription, example={"filter": "type:order.*", "start": "earliest"},
)  # fmt: skip
async def save_durable_subscription(
    call: RequestContext, queue: Name, name: Name, new: NewBroadcastSubscription
) -> BroadcastSubscriptionView:
    """Creates the subscription, or changes its filter, ttl and settings. Every publish after the
    response is copied to it."""
    start = read_start(new.start)
    saved = await Broadcasts(call.admin).subscribe(
        queue, name, filter=new.filter, ttl=new.ttl, start=start, scope=call.scope, **new.settings
    )
    return make_broadcast_view(queue, saved)


@broadcasts.add("DELETE", f"{PATH}/{{name}}", "Delete a durable subscription", Unsubscribed)
async def delete_durable_subscription(
    call: RequestContext, queue: Name, name: Name
) -> Unsubscribed:
    """Cancels the messages that wait in it."""
    return Unsubscribed(await Broadcasts(call.admin).unsubscribe(queue, name, scope=call.scope))
