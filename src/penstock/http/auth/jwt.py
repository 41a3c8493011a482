"""Verifies JWTs of a trusted issuer."""

import time
from collections.abc import Callable
from typing import Any

import jwt

from penstock.errors import InvalidInput, Unauthenticated
from penstock.http.auth.identity import Identity, TrustedIssuers, make_identity
from penstock.http.auth.issuer import check_url
from penstock.http.auth.jwks import KIND, JsonWebKeySet

LEEWAY_S = 60
MAX_KID_LENGTH = 200
REQUIRED = ["exp", "iss", "aud", "sub", "jti"]
# A verified token is cached this long, which bounds the use of a removed key.
CACHE_TTL_S = 60.0
MAX_TIMESTAMP = 2**53


class JwtVerifier:
    def __init__(self, trusted: TrustedIssuers, now: Callable[[], float] = time.time) -> None:
        self.trusted = trusted
        self.now = now
        self.keys = JsonWebKeySet(trusted.jwks_url or "")

    async def identify(self, token: str) -> Identity:
        header = self.read_header(token)
        try:
            claims = await self.verify(token, header.get("kid"), header["alg"])
        except jwt.InvalidSignatureError:
            raise Unauthenticated("invalid token signature") from None
        until = min(float(claims["exp"]) + LEEWAY_S, self.now() + CACHE_TTL_S)
        return make_identity(claims, self.trusted, until, kind="jwt")

    async def verify(self, token: str, kid: str | None, algorithm: str) -> dict[str, Any]:
        seen = self.keys.begun
        try:
            return self.verify_claims(token, await self.key(kid, algorithm), algorithm)
        except jwt.InvalidSignatureError:
            # The issuer may have replaced the key and kept its kid.
            if not await self.keys.fetch_after(seen):
                raise
        return self.verify_claims(token, await self.key(kid, algorithm), algorithm)

    async def key(self, kid: str | None, algorithm: str) -> jwt.PyJWK:
        key = await self.keys.find(kid, algorithm)
        if key is None:
            raise Unauthenticated("token is signed with a key unknown to its issuer")
        return key

    def is_signed_by_issuer(self, token: str) -> bool:
        """True if the signature algorithm is one of the issuer's."""
        try:
            return jwt.get_unverified_header(token).get("alg") in self.trusted.algorithms
        except (jwt.PyJWTError, ValueError, RecursionError):
            return False

    def read_header(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise Unauthenticated("malformed token") from None
        if header.get("alg") not in self.trusted.algorithms:
            raise Unauthenticated("token's signature algorithm is not allowed")
        kid = header.get("kid")
        if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= MAX_KID_LENGTH):
            raise Unauthenticated("invalid kid in the token header")
        return header

    def verify_claims(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self.trusted.audience,
                issuer=self.trusted.issuer,
                leeway=LEEWAY_S,
                options={"require": [*REQUIRED, *self.trusted.require_claims]},
            )
        except jwt.InvalidSignatureError:
            raise
        except (jwt.PyJWTError, ValueError, OverflowError, TypeError) as error:
            raise Unauthenticated(f"invalid token: {error}") from None
        for name in ("exp", "nbf", "iat"):
            if not is_moment(claims.get(name, 0)):
                raise Unauthenticated(f"token's {name} claim is not a valid timestamp")
        return claims


def is_moment(value: object) -> bool:
    """True for a number of seconds, not for a numeric string."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value < MAX_TIMESTAMP
    )


def check(trusted: TrustedIssuers) -> None:
    """Checks that the issuer settings are complete and safe."""
    given = (trusted.issuer, trusted.audience, trusted.jwks_url)
    if any(given) and not all(given):
        raise InvalidInput("JWT authentication requires jwt_issuer, jwt_audience and jwks_url")
    if trusted.jwks_url:
        check_url("jwks_url", trusted.jwks_url)
    if trusted.introspect_url:
        check_url("introspect_url", trusted.introspect_url)
    if foreign := [name for name in trusted.algorithms if name not in ALGORITHMS]:
        raise InvalidInput(
            f"jwt_algorithms: {', '.join(foreign)[:100]} is not one of {', '.join(ALGORITHMS)}"
        )


# Asymmetric algorithms only: a shared secret that verifies tokens can also forge them.
ALGORITHMS = tuple(
    name
    for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
                 "EdDSA")
    if name[:2] in KIND
)  # fmt: skip
