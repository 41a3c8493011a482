"""What is known of a caller, and what a server is told about whom to believe."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from penstock.access import EVERY, grant_of
from penstock.checks import NAME, encodes
from penstock.errors import InvalidInput, Unauthenticated
from penstock.message import NEVER, Moment

LONGEST_SUBJECT = 200
OURS = "penstock:"


class Believed(Struct, frozen=True):
    """Settings: with none of these there are API keys alone."""

    issuer: str | None = None
    audience: str | None = None
    jwks_url: str | None = None
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    # The claim that says the tenant; without it every token is of the owner's.
    tenant_claim: str | None = None
    introspect_url: str | None = None
    introspect_client: str = ""
    introspect_secret: str = ""
    # Requests a second of one caller, unless its key says otherwise.
    rate: float = 0.0
    # Refuse tokens without the claim `eventTypes`, instead of serving them every type.
    require_event_types: bool = False


class Identity(Struct, frozen=True, kw_only=True):
    """`until` is when it has to be asked again, in seconds since 1970."""

    subject: str
    tenant: str = "default"
    roles: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    scopes: tuple[str, ...] = (EVERY,)
    types: tuple[str, ...] = (EVERY,)
    rate: float | None = None
    # Of an API key.
    expires_at: Moment = NEVER
    until: float = float("inf")


def identity_of(
    claims: Mapping[str, Any], believed: Believed, until: float, *, kind: Literal["jwt", "opaque"]
) -> Identity:
    """What an issuer says of a subject. The kind of token marks the subject, so that an issuer
    cannot name an API key or a user of the command line."""
    return Identity(
        subject=f"{kind}:{subject_of(claims)}",
        tenant=tenant_of(claims, believed.tenant_claim),
        grants=grants_of(claims),
        types=types_of(claims, required=believed.require_event_types),
        until=until,
    )


def subject_of(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT:
        raise Unauthenticated("the token does not say who it is for")
    if not subject.isprintable() or not encodes(subject):
        raise Unauthenticated("the token's subject is not a readable text")
    return subject


def tenant_of(claims: Mapping[str, Any], claim: str | None) -> str:
    if claim is None:
        return "default"
    tenant = claims.get(claim)
    if not isinstance(tenant, str) or not NAME.fullmatch(tenant):
        raise Unauthenticated(f"the token does not say its tenant in {claim!r}")
    return tenant


def grants_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """`penstock:publish` and the like, among what other services mean."""
    return tuple(
        word.removeprefix(OURS)
        for word in words_of(claims.get("scope", claims.get("scp")))
        if word.startswith(OURS) and is_grant(word.removeprefix(OURS))
    )


def is_grant(text: str) -> bool:
    try:
        return not grant_of(text).deny
    except InvalidInput:
        return False


def types_of(claims: Mapping[str, Any], *, required: bool = False) -> tuple[str, ...]:
    """The types a token may claim. An empty list is none at all."""
    if "eventTypes" not in claims and not required:
        return (EVERY,)
    given = claims.get("eventTypes")
    if not is_text_or_texts(given):
        raise Unauthenticated("the token's eventTypes must be a string or a list of strings")
    return tuple(words_of(given))


def is_text_or_texts(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, str)


def words_of(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return [each for each in value if isinstance(each, str)]
    return []
