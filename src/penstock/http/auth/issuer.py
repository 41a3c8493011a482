"""Requests to a token issuer: short timeout, bounded response, no redirects."""

from collections.abc import Container
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from penstock.errors import IdentityUnavailable, InvalidInput, Unauthenticated

REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=5)
MAX_RESPONSE_BYTES = 262_144
NEARBY = ("127.0.0.1", "::1", "localhost")


def check_url(name: str, url: str) -> None:
    """Requires https, except for issuers on this machine."""
    parts = urlsplit(url)
    nearby = parts.scheme == "http" and parts.hostname in NEARBY
    if not (parts.hostname and (parts.scheme == "https" or nearby)):
        raise InvalidInput(f"{name} {url[:200]!r} is not an https:// URL")


async def fetch(method: str, url: str, *, refusals: Container[int] = (), **request: Any) -> Any:
    """Returns the decoded JSON response. A status in `refusals` means an invalid credential."""
    try:
        async with (
            aiohttp.ClientSession(timeout=REQUEST_TIMEOUT, trust_env=False) as session,
            session.request(method, url, allow_redirects=False, **request) as response,
        ):
            if response.status in refusals:
                raise Unauthenticated("invalid API key or token")
            if response.status != 200:
                raise IdentityUnavailable(f"{url} returned status {response.status}")
            body = await response.content.read(MAX_RESPONSE_BYTES + 1)
            while len(body) <= MAX_RESPONSE_BYTES and (
                more := await response.content.read(MAX_RESPONSE_BYTES)
            ):
                body += more
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise IdentityUnavailable(f"request to {url} failed: {str(error) or 'timeout'}") from None
    if len(body) > MAX_RESPONSE_BYTES:
        raise IdentityUnavailable(f"{url} returned more than {MAX_RESPONSE_BYTES} bytes")
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise IdentityUnavailable(f"{url} did not return JSON") from None
