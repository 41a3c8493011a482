"""Token introspection (RFC 7662), cached for a minute per token."""

import time
from base64 import b64encode
from collections.abc import Callable

from penstock.errors import IdentityUnavailable, Unauthenticated
from penstock.http.auth.identity import Identity, TrustedIssuers, make_identity
from penstock.http.auth.issuer import fetch
from penstock.http.auth.jwt import is_moment

BELIEVED_FOR = 60.0


class Introspection:
    def __init__(self, believed: TrustedIssuers, now: Callable[[], float] = time.time) -> None:
        self.believed = believed
        self.now = now

    async def identify(self, token: str) -> Identity:
        believed = self.believed
        assert believed.introspect_url is not None
        who = b64encode(f"{believed.introspect_client}:{believed.introspect_secret}".encode())
        basic = {"Authorization": f"Basic {who.decode()}"}
        told = await fetch(
            "POST",
            believed.introspect_url,
            data={"token": token, "token_type_hint": "access_token"},
            headers=basic if believed.introspect_client else None,
        )
        if not isinstance(told, dict):
            raise IdentityUnavailable("token introspection did not return a JSON object")
        if told.get("active") is not True:
            raise Unauthenticated("token is not active")
        expires = told.get("exp", self.now() + BELIEVED_FOR)
        if not is_moment(expires) or expires <= self.now():
            raise Unauthenticated("token has expired")
        claims = {**told, "sub": told.get("sub") or told.get("client_id") or told.get("username")}
        until = min(float(expires), self.now() + BELIEVED_FOR)
        return make_identity(claims, believed, until, kind="opaque")
