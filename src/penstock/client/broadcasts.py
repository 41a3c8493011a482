"""The durable subscriptions of broadcast queues over HTTP."""

from typing import Any
from urllib.parse import quote

from penstock.client.transport import RemoteGroup
from penstock.model.broadcast import BroadcastSubscription
from penstock.model.message import Moment
from penstock.wire.broadcasts import (
    BroadcastSubscriptions,
    BroadcastSubscriptionView,
    NewBroadcastSubscription,
    Unsubscribed,
    make_broadcast_subscription,
)
from penstock.wire.fields import to_datetime


class RemoteBroadcasts(RemoteGroup):
    """Implements `BroadcastsInterface` by HTTP calls."""

    async def subscribe(
        self,
        /,
        queue: str,
        name: str,
        *,
        filter: str = "",
        ttl: float | None = None,
        start: str | Moment = "now",
        scope: str = "default",
        **settings: Any,
    ) -> BroadcastSubscription:
        begin = to_datetime(start).isoformat() if isinstance(start, int) else start
        sent = NewBroadcastSubscription(filter=filter, ttl=ttl, start=begin, settings=settings)
        saved = await self.send(
            "PUT",
            subscription_path(queue, name),
            sent,
            gives=BroadcastSubscriptionView,
            scope=scope,
        )
        return make_broadcast_subscription(saved)

    async def list_subscriptions(
        self, queue: str, *, scope: str = "default"
    ) -> list[BroadcastSubscription]:
        found = await self.send(
            "GET", subscription_path(queue), gives=BroadcastSubscriptions, scope=scope
        )
        return [make_broadcast_subscription(each) for each in found.subscriptions]

    async def get(self, queue: str, name: str, *, scope: str = "default") -> BroadcastSubscription:
        found = await self.send(
            "GET", subscription_path(queue, name), gives=BroadcastSubscriptionView, scope=scope
        )
        return make_broadcast_subscription(found)

    async def unsubscribe(self, queue: str, name: str, *, scope: str = "default") -> int:
        done = await self.send(
            "DELETE", subscription_path(queue, name), gives=Unsubscribed, scope=scope
        )
        return done.cancelled


def subscription_path(queue: str, name: str | None = None) -> str:
    path = f"/v1/queues/{quote(queue, safe='')}/subscriptions"
    return path if name is None else f"{path}/{quote(name, safe='')}"
