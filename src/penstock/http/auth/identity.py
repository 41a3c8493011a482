"""The identity of a caller, and the settings of trusted token issuers."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from penstock.errors import InvalidInput, Unauthenticated
from penstock.model.message import NEVER, Moment
from penstock.model.queue import EVERY
from penstock.rules.access import Right, parse_grant
from penstock.rules.validation import NAME, is_encodable

MAX_SUBJECT_LENGTH = 200
MAX_GROUPS = 100
GRANT_PREFIX = "penstock:"
# The verbs of the right to consume that a token may be limited to. Uploads belong to complete.
CONSUME_VERBS = frozenset({
    "claim", "complete", "fail", "nack", "reject", "release", "park", "cancel", "extend", "begin",
    "progress", "subscribe",
})  # fmt: skip
SCOPE_PRESETS: dict[str, dict[str, tuple[str, ...]]] = {
    "codeq": {
        "codeq:claim": ("claim",),
        "codeq:heartbeat": ("extend", "begin", "progress"),
        "codeq:abandon": ("release",),
        "codeq:nack": ("nack", "reject"),
        "codeq:result": ("complete", "fail"),
        "codeq:subscribe": ("subscribe",),
    }
}


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
    # Further claims that JWTs must have.
    require_claims: tuple[str, ...] = ()
    # Maps scopes of an issuer to rights, or to single verbs of the right to consume.
    token_scopes: Mapping[str, tuple[str, ...]] = {}
    introspect_kind: Literal["rfc7662", "lookup"] = "rfc7662"


class Identity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`until` is the Unix time at which it must be verified again."""

    subject: str
    tenant: str = "default"
    roles: tuple[str, ...] = ()
    # Roles of a person by a token. They give no rights, but human steps may be assigned to them.
    groups: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    scopes: tuple[str, ...] = (EVERY,)
    types: tuple[str, ...] = (EVERY,)
    # The verbs of the right to consume that a token allows, or None for all.
    verbs: frozenset[str] | None = None
    rate: float | None = None
    # Set for API keys.
    expires_at: Moment = NEVER
    until: float = float("inf")
    # When its token expires.
    token_until: Moment = NEVER


def make_identity(
    claims: Mapping[str, Any],
    trusted: TrustedIssuers,
    until: float,
    *,
    kind: Literal["jwt", "opaque"],
) -> Identity:
    """Maps token claims to an identity. The subject is prefixed with the kind of token, so an
    issuer cannot impersonate an API key or a CLI user."""
    grants, verbs = read_scopes(claims, trusted.token_scopes)
    return Identity(
        subject=f"{kind}:{read_subject(claims)}",
        tenant=read_tenant(claims, trusted.tenant_claim),
        grants=grants,
        verbs=verbs,
        groups=tuple(split_words(claims.get("roles", claims.get("groups"))))[:MAX_GROUPS],
        types=read_types(claims, required=trusted.require_event_types),
        until=until,
        token_until=read_expiry(claims),
    )


def read_expiry(claims: Mapping[str, Any]) -> Moment:
    expires = claims.get("exp")
    return min(int(expires * 1_000_000), NEVER) if isinstance(expires, int | float) else NEVER


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


def read_scopes(
    claims: Mapping[str, Any], token_scopes: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[str, ...], frozenset[str] | None]:
    """Returns the grants of a token, and the verbs to which its right to consume is limited."""
    own = read_grants(claims)
    words = split_words(claims.get("scope", claims.get("scp")))
    allowed = {each for word in words for each in token_scopes.get(word, ())}
    verbs = frozenset(allowed & CONSUME_VERBS)
    rights = sorted(allowed - CONSUME_VERBS)
    unlimited = not verbs or {Right.CONSUME, EVERY} & {*rights, *map(read_right, own)}
    return (*own, *rights, *(["consume"] if verbs else [])), None if unlimited else verbs


def read_right(grant: str) -> str:
    return parse_grant(grant).right


def parse_token_scopes(text: str) -> dict[str, tuple[str, ...]]:
    """Parses `jobs:run=claim+complete,jobs:add=publish`, or the name of a preset."""
    if text in SCOPE_PRESETS:
        return SCOPE_PRESETS[text]
    found: dict[str, tuple[str, ...]] = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        scope, equals, allowed = pair.partition("=")
        words = tuple(allowed.split("+"))
        if not equals or not scope or set(words) - CONSUME_VERBS - {*Right}:
            raise InvalidInput(
                f"token-scopes {pair[:100]!r} is not SCOPE=WORD+WORD; a WORD is one of"
                f" {', '.join([*Right, *sorted(CONSUME_VERBS)])}"
            )
        found[scope] = words
    return found


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
