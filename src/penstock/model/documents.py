"""Nouns beside the queues: what a feature keeps, and what somebody did."""

from contextvars import ContextVar

from msgspec import Struct

from penstock.model.message import NEVER, Moment


class Document(Struct, frozen=True, kw_only=True):
    """Something small that a feature keeps under a name: a key, a role, a subscription.

    The version grows with every save. One that is saved with a version replaces just that one, 0
    none at all; without it, whatever is there.
    """

    kind: str
    name: str
    body: bytes
    version: int | None = None
    expires_at: Moment = NEVER


class AuditEntry(Struct, frozen=True, kw_only=True):
    """What somebody did to the store, or was refused."""

    subject: str
    tenant: str
    verb: str
    target: str
    # Empty for what is the tenant's, and for refusals.
    scope: str = ""
    request_id: str = ""
    detail: str = ""
    at: Moment = 0
    id: int = 0


# Who answers for what this task changes; the row is written by the transaction that does it.
acting: ContextVar[AuditEntry | None] = ContextVar("acting", default=None)
