"""Wire types of webhooks about human steps."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.model.human_webhooks import HumanWebhookStatus
from penstock.model.structs import copy_fields
from penstock.wire.fields import Time, to_datetime, to_optional_datetime

WebhookName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class NewHumanWebhook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Notifies about human steps. With `links`, each assigned person gets a link to decide."""

    name: WebhookName
    url: Annotated[str, Meta(max_length=2_000)]
    links: bool = False


class HumanWebhookView(Struct, frozen=True, kw_only=True):
    """A webhook and its delivery. `error` is the reason if the last notification failed."""

    name: str
    scope: str
    url: str
    links: bool
    created_at: Time
    last_sent_at: Time | None = None
    error: str | None = None


class HumanWebhookList(Struct, frozen=True):
    webhooks: list[HumanWebhookView]


def make_webhook_view(status: HumanWebhookStatus) -> HumanWebhookView:
    webhook, state = status.webhook, status.state
    return copy_fields(
        HumanWebhookView,
        webhook,
        created_at=to_datetime(webhook.created_at),
        last_sent_at=to_optional_datetime(state.last_sent_at),
        error=state.last_error,
    )
