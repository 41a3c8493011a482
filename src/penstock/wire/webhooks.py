"""Wire types of callbacks, webhook subscriptions and signing secrets."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct

from penstock.model.message import HistoryRow, Moment, Record, State
from penstock.model.queue import Queue
from penstock.model.structs import copy_fields
from penstock.rules.callbacks import SigningSecrets
from penstock.rules.subscriptions import Mode, WebhookSubscription
from penstock.wire.consume import ArtifactView, ClaimRequest, ClaimSource
from penstock.wire.fields import (
    Json,
    Name,
    Time,
    Url,
    Word,
    is_json,
    to_datetime,
    to_optional_datetime,
)

# Receivers fetch longer results themselves.
MAX_RESULT_BYTES = 65_536


class CallbackResult(Struct, frozen=True, omit_defaults=True):
    """A message that ended. `result` is included if it is JSON of at most 64 KiB."""

    id: str
    scope: str
    queue: str
    type: str
    state: State
    attempts: int
    created_at: Time
    ended_at: Time
    name: str | None = None
    reason: str | None = None
    error: str | None = None
    result: Json = UNSET
    correlation_id: str | None = None
    parent_id: str | None = None
    artifacts: list[ArtifactView] = []


class Callback(Struct, frozen=True):
    """The body of a callback. `type` is `message.` plus the state."""

    type: str
    timestamp: Time
    data: CallbackResult


class CallbackSecret(Struct, frozen=True, omit_defaults=True):
    """Callbacks are signed with `secret`, and until `until` also with `previous`."""

    secret: str
    previous: str | None = None
    until: Time | None = None


def make_callback(
    record: Record,
    row: HistoryRow,
    queue: Queue,
    result: bytes | None,
    artifacts: list[ArtifactView],
) -> Callback:
    message, meta = record.message, record.message.meta
    shown = result and len(result) <= MAX_RESULT_BYTES and is_json(result)
    outcome = CallbackResult(
        id=str(message.id),
        scope=queue.scope.name,
        queue=queue.name,
        type=message.type,
        state=row.state,
        attempts=row.attempts,
        created_at=to_datetime(message.created_at),
        ended_at=to_datetime(row.at),
        name=meta.name,
        reason=row.reason,
        error=row.error,
        result=Raw(result) if result and shown else UNSET,
        correlation_id=meta.correlation_id,
        parent_id=None if meta.parent_id is None else str(meta.parent_id),
        artifacts=artifacts,
    )
    return Callback(f"message.{row.state}", to_datetime(row.at), outcome)


def make_secret_view(secrets: SigningSecrets) -> CallbackSecret:
    return CallbackSecret(secrets.current, secrets.previous, to_optional_datetime(secrets.until))


Ttl = Annotated[float, Meta(ge=10, le=3_600, description="Seconds until it expires.")]
Interval = Annotated[
    float, Meta(ge=1, le=3_600, description="Minimum seconds between two notices.")
]


class NewSubscription(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Posts a notice to `url` when one of the queues has work. `fanout` notifies every subscriber,
    `group` one subscriber per group in turn, `hash` the same subscriber for the same queue."""

    url: Url
    queues: Annotated[list[Name], Meta(min_length=1, max_length=16)]
    types: Annotated[list[Word], Meta(max_length=16)] = []
    mode: Mode = "fanout"
    group: Word | None = None
    ttl: Ttl = 300.0
    min_interval: Interval = 5.0


class SubscriptionView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expires at `expires_at` unless a heartbeat renews it."""

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


class Subscriptions(Struct, frozen=True, omit_defaults=True):
    subscriptions: list[SubscriptionView]
    cursor: str | None = None


class Available(Struct, frozen=True):
    """A queue that has work: which of the subscribed types, how many messages are ready, as counted
    some seconds ago, and the request to claim them."""

    scope: str
    queue: str
    types: list[str]
    depth: int
    claim_url: str
    claim: ClaimRequest


class Notice(Struct, frozen=True):
    """The body of a notice. It is a hint: it may arrive late, twice or never."""

    type: str
    timestamp: Time
    data: Available


def make_subscription_view(
    subscription: WebhookSubscription, expires_at: Moment
) -> SubscriptionView:
    return copy_fields(
        SubscriptionView,
        subscription,
        queues=list(subscription.queues),
        expires_at=to_datetime(expires_at),
        types=list(subscription.types),
    )


def make_notice(
    queue: Queue, types: Sequence[str], depth: int, public_url: str, now: Moment
) -> Notice:
    scope = queue.scope.name
    suffix = "" if scope == "default" else f"?scope={scope}"
    claim = ClaimRequest(queues=[ClaimSource(queue.name, list(types))])
    available = Available(
        scope, queue.name, list(types), depth, f"{public_url}/v1/claim{suffix}", claim
    )
    return Notice("work.available", to_datetime(now), available)
