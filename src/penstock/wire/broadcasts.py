"""Wire types of the durable subscriptions of broadcast queues."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from penstock.errors import InvalidInput
from penstock.model.broadcast import BroadcastSubscription, make_child_name
from penstock.model.message import Moment
from penstock.model.structs import copy_fields
from penstock.rules.validation import clip
from penstock.wire.fields import Time, to_datetime, to_moment, to_optional_datetime

Filter = Annotated[str, Meta(description="Filter of the messages it receives. Empty matches all.")]
Start = Annotated[
    str, Meta(max_length=40, description="`now`, `earliest`, or a time with its zone.")
]
SubscriptionTtl = Annotated[
    float, Meta(ge=60, description="Seconds without a claim after which it is deleted.")
]


def read_start(text: str) -> str | Moment:
    if text in ("now", "earliest"):
        return text
    try:
        return to_moment(msgspec.convert(text, Time))
    except msgspec.ValidationError:
        raise InvalidInput(
            f"start {clip(text)} is not now, earliest or a time such as 2026-01-31T12:00:00Z"
        ) from None


class NewBroadcastSubscription(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`start` is `now`, `earliest` or a time, and counts only when the subscription is created.
    `settings` are queue settings such as `max_attempts`, `backoff`, `ordering` and `max_depth`."""

    filter: Filter = ""
    ttl: SubscriptionTtl | None = None
    start: Start = "now"
    settings: dict[str, Any] = {}


class BroadcastSubscriptionView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A durable subscription. Claim its messages from `queue`. While `catching_up`, newer messages
    may come before older ones; while `full`, copies become dead letters."""

    name: str
    queue: str
    version: int
    created_at: Time
    filter: str = ""
    ttl: float | None = None
    start: Time | None = None
    catching_up: bool = False
    full: bool = False


class BroadcastSubscriptions(Struct, frozen=True):
    subscriptions: list[BroadcastSubscriptionView]


class Unsubscribed(Struct, frozen=True):
    """The number of waiting messages that were cancelled."""

    cancelled: int


def make_broadcast_view(
    queue: str, subscription: BroadcastSubscription
) -> BroadcastSubscriptionView:
    return copy_fields(
        BroadcastSubscriptionView,
        subscription,
        queue=make_child_name(queue, subscription.name),
        created_at=to_datetime(subscription.created_at),
        start=to_optional_datetime(subscription.start),
    )


def make_broadcast_subscription(view: BroadcastSubscriptionView) -> BroadcastSubscription:
    return copy_fields(
        BroadcastSubscription,
        view,
        start=None if view.start is None else to_moment(view.start),
        created_at=to_moment(view.created_at),
    )
