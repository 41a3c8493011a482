"""Cross-origin requests (CORS): which web pages may call the service from a browser."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from penstock.errors import InvalidInput

Headers: TypeAlias = list[tuple[bytes, bytes]]
ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
# Browsers may cache the response to a preflight request for this long, in seconds.
MAX_AGE_S = 600
EXPOSED = b"retry-after, x-message-state, x-request-id"


class CorsPolicy:
    """Allows pages of exactly these origins. They send credentials in headers, never in cookies."""

    def __init__(self, origins: Iterable[str]) -> None:
        self.origins = frozenset(check_origin(each).encode() for each in origins)

    def find_origin(self, scope: Mapping[str, Any]) -> bytes | None:
        """Returns the origin of the request if it is allowed."""
        for name, value in scope["headers"]:
            if name == b"origin":
                return value if value in self.origins else None
        return None

    def make_headers(self, origin: bytes) -> Headers:
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"Origin"),
        ]

    def make_preflight_headers(self, scope: Mapping[str, Any]) -> Headers:
        asked = {name: value for name, value in scope["headers"] if name.startswith(b"access-")}
        return [
            (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
            (
                b"access-control-allow-headers",
                asked.get(b"access-control-request-headers", b"authorization, content-type"),
            ),
            (b"access-control-max-age", b"%d" % MAX_AGE_S),
        ]


def is_preflight(scope: Mapping[str, Any]) -> bool:
    return scope["method"] == "OPTIONS" and any(
        name == b"access-control-request-method" for name, _ in scope["headers"]
    )


def check_origin(origin: str) -> str:
    if not ORIGIN.fullmatch(origin):
        raise InvalidInput(
            f"CORS origin {origin[:100]!r} is not an exact origin; write scheme, host and port as"
            " the browser shows them, such as https://app.example.org or http://localhost:5173"
        )
    return origin
