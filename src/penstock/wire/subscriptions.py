"""Who wants to hear that there is work, and what is posted to them."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.message import Moment
from penstock.notice import Mode, WebhookSubscription
from penstock.wire.texts import Name, Time, Url, Word, to_datetime

Ttl = Annotated[float, Meta(ge=10, le=3_600, description="Seconds until it ends.")]
Interval = Annotated[float, Meta(ge=1, le=3_600, description="Seconds between two notices.")]


class NewSubscription(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tell `url` when one of the queues has work. `fanout` tells every subscriber, `group` one of
    each group in turn, `hash` the same one for the same queue."""

    url: Url
    queues: Annotated[list[Name], Meta(min_length=1, max_length=16)]
    types: Annotated[list[Word], Meta(max_length=16)] = []
    mode: Mode = "fanout"
    group: Word | None = None
    ttl: Ttl = 300.0
    min_interval: Interval = 5.0


class SubscriptionView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """It ends at `expires_at`, unless a heartbeat comes before."""

    id: str
    scope: str
    url: str
    queues: list[str]
    mode: Mode
    ttl: float
    min_interval: float
    expires_at: Time
    types: list[str] = []
    group: str | None = None


class Subscriptions(Struct, frozen=True):
    subscriptions: list[SubscriptionView]


class Available(Struct, frozen=True):
    """A queue that has work."""

    scope: str
    queue: str


class Notice(Struct, frozen=True):
    """The body of a notice: a hint, which may come late, twice or never."""

    type: str
    timestamp: Time
    data: Available


def make_subscription_view(
    subscription: WebhookSubscription, expires_at: Moment
) -> SubscriptionView:
    return SubscriptionView(
        id=subscription.id,
        scope=subscription.scope,
        url=subscription.url,
        queues=list(subscription.queues),
        mode=subscription.mode,
        ttl=subscription.ttl,
        min_interval=subscription.min_interval,
        expires_at=to_datetime(expires_at),
        types=list(subscription.types),
        group=subscription.group,
    )


def make_notice(scope: str, queue: str, now: Moment) -> Notice:
    return Notice("work.available", to_datetime(now), Available(scope, queue))
