"""Wire types of API keys, roles, trusts and the audit log."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from penstock.model.documents import AuditEntry
from penstock.model.fields import MAX_WORD_LENGTH
from penstock.model.message import NEVER, Moment
from penstock.model.queue import EVERY
from penstock.rules.access import Key, KeyState, Trust
from penstock.rules.audit_chain import AuditReport, FindingKind
from penstock.rules.audit_changes import read_changes
from penstock.wire.fields import Name, Time, Word, to_datetime, to_optional_datetime

Grants = Annotated[list[Annotated[str, Meta(max_length=MAX_WORD_LENGTH)]], Meta(max_length=100)]


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    """Needs at least one role or grant. `ttl` is in seconds. `tenant` defaults to the caller's;
    only the owner of the store may name another."""

    name: Word
    roles: Annotated[list[Name], Meta(max_length=20)] = []
    grants: Grants = []
    scopes: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)] = (EVERY,)
    types: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)] = (EVERY,)
    ttl: Annotated[float, Meta(gt=0, le=3_153_600_000)] | None = None
    rate: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    tenant: Name | None = None


class KeyView(Struct, frozen=True, omit_defaults=True):
    """`key` is the secret key. It is shown only when the key is created or rotated."""

    id: str
    name: str
    tenant: str
    state: KeyState
    roles: tuple[str, ...]
    grants: tuple[str, ...]
    scopes: tuple[str, ...]
    types: tuple[str, ...]
    created_at: Time
    created_by: str
    expires_at: Time | None = None
    revoked_at: Time | None = None
    rate: float | None = None
    key: str | None = None


class Keys(Struct, frozen=True, omit_defaults=True):
    keys: list[KeyView]
    cursor: str | None = None


class RotateRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The previous key stays valid for `grace` seconds."""

    grace: Annotated[float, Meta(ge=0, le=2_592_000)] = 0.0


class NewRole(Struct, frozen=True, forbid_unknown_fields=True):
    grants: Grants


class RoleView(Struct, frozen=True):
    name: str
    grants: tuple[str, ...]
    built_in: bool


class Roles(Struct, frozen=True):
    roles: list[RoleView]


class TrustView(Struct, frozen=True):
    """Callers of scope `trusted` have these grants in `scope`."""

    scope: str
    trusted: str
    grants: tuple[str, ...]


class Trusts(Struct, frozen=True):
    trusts: list[TrustView]


class AuditEntryView(Struct, frozen=True, omit_defaults=True):
    id: str
    at: Time
    tenant: str
    subject: str
    verb: str
    target: str
    scope: str = ""
    detail: str = ""
    request_id: str = ""
    # Maps fields to the values before and after; "changed" for a secret.
    changes: dict[str, Any] | None = None


class TicketView(Struct, frozen=True):
    """Give `ticket` to the event stream before `expires_at`."""

    ticket: str
    expires_at: Time


class AuditPage(Struct, frozen=True, omit_defaults=True):
    acts: list[AuditEntryView]
    cursor: str | None = None


def make_key_view(key: Key, now: Moment, token: str | None = None) -> KeyView:
    return KeyView(
        id=key.id,
        name=key.name,
        tenant=key.tenant,
        state=key.state(now),
        roles=key.roles,
        grants=key.grants,
        scopes=key.scopes,
        types=key.types,
        created_at=to_datetime(key.created_at),
        created_by=key.created_by,
        expires_at=None if key.expires_at == NEVER else to_datetime(key.expires_at),
        revoked_at=to_optional_datetime(key.revoked_at),
        rate=key.rate,
        key=token,
    )


def make_trust_view(trust: Trust) -> TrustView:
    return TrustView(trust.scope, trust.trusted, tuple(map(str, trust.grants)))


def make_audit_view(act: AuditEntry) -> AuditEntryView:
    changes = read_changes(act.detail)
    return AuditEntryView(
        id=str(act.id),
        at=to_datetime(act.at),
        tenant=act.tenant,
        subject=act.subject,
        verb=act.verb,
        target=act.target,
        scope=act.scope,
        detail="" if changes else act.detail,
        request_id=act.request_id,
        changes=changes,
    )


class SealView(Struct, frozen=True):
    """The end of the audit log's hash chain, as NUMBER:HASH."""

    seal: str


class FindingView(Struct, frozen=True):
    """An entry that does not agree with the hash chain. `seal` is the number of its seal."""

    finding: FindingKind
    entry: str | None
    seal: int | None


class AuditReportView(Struct, frozen=True):
    """The result of a verification. `sealed` entries were compared."""

    intact: bool
    sealed: int
    seal: str
    findings: list[FindingView]


def make_audit_report(report: AuditReport) -> AuditReportView:
    return AuditReportView(
        report.intact,
        report.sealed,
        str(report.head),
        [
            FindingView(
                each.kind, str(each.entry_id) if each.entry_id else None, each.number or None
            )
            for each in report.findings
        ],
    )
