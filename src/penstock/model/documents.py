"""Documents that features store beside the queues, and audit log entries."""

from contextvars import ContextVar

from msgspec import Struct

from penstock.model.message import NEVER, Moment


class Document(Struct, frozen=True, kw_only=True):
    """A small named value of a feature: an API key, a role, a subscription.

    The version grows with every save. Saving with a version replaces only that version, and
    version 0 only creates. Saving without one always replaces.
    """

    kind: str
    name: str
    body: bytes
    version: int | None = None
    expires_at: Moment = NEVER


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One row of the audit log: an operation that was done or denied."""

    subject: str
    tenant: str
    verb: str
    target: str
    # Empty for operations on the whole tenant, and for denials.
    scope: str = ""
    request_id: str = ""
    detail: str = ""
    at: Moment = 0
    id: int = 0


# The audit entry of the current request. The transaction that makes a change also writes the row.
acting: ContextVar[AuditEntry | None] = ContextVar("acting", default=None)
