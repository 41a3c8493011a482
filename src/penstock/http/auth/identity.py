"""The identity of a caller, and the settings of trusted token issuers."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from penstock.errors import InvalidInput, Unauthenticated
from penstock.model.message import NEVER, Moment
from penstock.rules.access import EVERY, parse_grant
from penstock.rules.validation import NAME, is_encodable

MAX_SUBJECT_LENGTH = 200
GRANT_PREFIX = "penstock:"


class TrustedIssuers(Struct, frozen=True):
    """Settings of token issuers. Without any, only API keys are accepted."""

    issuer: str | None = None
    audience: str | None = None
    jwks_url: str | None = None
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    # The claim that names the tenant. Without it, tokens belong to the owner.
    tenant_claim: str | None = None
    introspect_url: str | None = None
    introspect_client: str = ""
    introspect_secret: str = ""
    # Requests per second of one caller, unless its key has a rate.
    rate: float = 0.0
    # Refuse tokens without an eventTypes claim instead of allowing every type.
    require_event_types: bool = False


class Identity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`until` is the Unix time at which it must be verified again."""

    subject: str
    tenant: str = "default"
    roles: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    scopes: tuple[str, ...] = (EVERY,)
    types: tuple[str, ...] = (EVERY,)
    rate: float | None = None
    # Set for API keys.
    expires_at: Moment = NEVER
    until: float = float("inf")


def make_identity(
    claims: Mapping[str, Any],
    believed: TrustedIssuers,
    until: float,
    *,
    kind: Literal["jwt", "opaque"],
) -> Identity:
    """Maps token claims to an identity. The subject is prefixed with the kind of token, so an
    issuer cannot impersonate an API key or a CLI user."""
    return Identity(
        subject=f"{kind}:{read_subject(claims)}",
        tenant=read_tenant(claims, believed.tenant_claim),
        grants=read_grants(claims),
        types=read_types(claims, required=believed.require_event_types),
        until=until,
    )


def read_subject(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_LENGTH:
        raise Unauthenticated("token has no valid sub claim")
    if not subject.isprintable() or not is_encodable(subject):
        raise Unauthenticated("token's sub claim contains unprintable characters")
    return subject


def read_tenant(claims: Mapping[str, Any], claim: str | None) -> str:
    if claim is None:
        return "default"
    tenant = claims.get(claim)
    if not isinstance(tenant, str) or not NAME.fullmatch(tenant):
        raise Unauthenticated(f"token has no valid tenant claim {claim!r}")
    return tenant


def read_grants(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the grants among the scopes, such as `penstock:publish`."""
    return tuple(
        word.removeprefix(GRANT_PREFIX)
        for word in split_words(claims.get("scope", claims.get("scp")))
        if word.startswith(GRANT_PREFIX) and is_grant(word.removeprefix(GRANT_PREFIX))
    )


def is_grant(text: str) -> bool:
    try:
        return not parse_grant(text).deny
    except InvalidInput:
        return False


def read_types(claims: Mapping[str, Any], *, required: bool = False) -> tuple[str, ...]:
    """Returns the message types a token may claim. An empty list allows none."""
    if "eventTypes" not in claims and not required:
        return (EVERY,)
    given = claims.get("eventTypes")
    if not is_text_or_texts(given):
        raise Unauthenticated("token's eventTypes claim must be a string or a list of strings")
    return tuple(split_words(given))


def is_text_or_texts(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, str)


def split_words(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return [each for each in value if isinstance(each, str)]
    return []
