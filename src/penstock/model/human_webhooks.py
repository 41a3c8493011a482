"""Webhooks about human steps, and what was sent to them."""

from msgspec import Struct, field

from penstock.model.message import Moment

HUMAN_WEBHOOK = "human_webhook"


class HumanWebhook(Struct, frozen=True, kw_only=True):
    """Receives notifications about the human steps of a scope.

    With `links`, a notification has a link for each assigned person, which decides as that person.
    """

    name: str
    tenant: str
    scope: str
    url: str
    links: bool = False
    created_at: Moment = 0


class HumanWebhookState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The delivery of a webhook. Steps published before `read_until` are known."""

    read_until: Moment = 0
    last_sent_at: Moment | None = None
    last_error: str | None = None


class HumanWebhookStatus(Struct, frozen=True):
    webhook: HumanWebhook
    state: HumanWebhookState


class StepNotice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last notification about a step, and when the next one may be sent."""

    opened: bool = False
    # Escalations and reminders of the current level that were sent.
    escalated: int = 0
    reminded: int = 0
    sent: int = field(default=0, name="letters")
    attempts: int = 0
    due_at: Moment = 0
