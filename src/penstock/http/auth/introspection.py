"""Asks another service about opaque tokens: RFC 7662 or account lookup. Cached for a minute."""

import time
from base64 import b64encode
from collections.abc import Callable

from msgspec.structs import replace

from penstock.errors import IdentityUnavailable, Unauthenticated
from penstock.http.auth.identity import Identity, TrustedIssuers, make_identity
from penstock.http.auth.issuer import fetch
from penstock.http.auth.jwt import is_moment
from penstock.model.queue import EVERY

CACHE_TTL_S = 60.0


class Introspection:
    def __init__(self, trusted: TrustedIssuers, now: Callable[[], float] = time.time) -> None:
        self.trusted = trusted
        self.now = now

    async def identify(self, token: str) -> Identity:
        trusted = self.trusted
        assert trusted.introspect_url is not None
        who = b64encode(f"{trusted.introspect_client}:{trusted.introspect_secret}".encode())
        basic = {"Authorization": f"Basic {who.decode()}"}
        answer = await fetch(
            "POST",
            trusted.introspect_url,
            data={"token": token, "token_type_hint": "access_token"},
            headers=basic if trusted.introspect_client else None,
        )
        if not isinstance(answer, dict):
            raise IdentityUnavailable("token introspection did not return a JSON object")
        if answer.get("active") is not True:
            raise Unauthenticated("token is not active")
        expires = answer.get("exp", self.now() + CACHE_TTL_S)
        if not is_moment(expires) or expires <= self.now():
            raise Unauthenticated("token has expired")
        claims = {
            **answer,
            "sub": answer.get("sub") or answer.get("client_id") or answer.get("username"),
        }
        until = min(float(expires), self.now() + CACHE_TTL_S)
        return make_identity(claims, trusted, until, kind="opaque")


class AccountLookup:
    """The lookup of Identity services: POST /v1/accounts/lookup?key=KEY with an idToken.

    Users may publish and read. A user whose `role` is ADMIN may do everything.
    """

    def __init__(self, trusted: TrustedIssuers, now: Callable[[], float] = time.time) -> None:
        self.trusted = trusted
        self.now = now

    async def identify(self, token: str) -> Identity:
        trusted = self.trusted
        assert trusted.introspect_url is not None
        answer = await fetch(
            "POST",
            trusted.introspect_url,
            refusals=(400, 401, 403, 404),
            params={"key": trusted.introspect_secret} if trusted.introspect_secret else None,
            json={"idToken": token},
        )
        users = answer.get("users") if isinstance(answer, dict) else None
        if not isinstance(users, list) or not all(isinstance(user, dict) for user in users):
            raise IdentityUnavailable("account lookup did not return a list of users")
        if not users or users[0].get("status", "ACTIVE") != "ACTIVE":
            raise Unauthenticated("token belongs to no active account")
        admin = users[0].get("role") == "ADMIN"
        claims = {**users[0], "sub": users[0].get("localId") or users[0].get("email")}
        identity = make_identity(claims, trusted, self.now() + CACHE_TTL_S, kind="opaque")
        return replace(
            identity, grants=("*",) if admin else ("publish", "read"), types=(EVERY,), verbs=None
        )


def make_introspection(
    trusted: TrustedIssuers, now: Callable[[], float]
) -> Introspection | AccountLookup:
    kind = AccountLookup if trusted.introspect_kind == "lookup" else Introspection
    return kind(trusted, now)
