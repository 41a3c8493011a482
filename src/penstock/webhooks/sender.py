"""Sends webhooks, signed according to Standard Webhooks, within the egress policy."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Self

import aiohttp
from msgspec import Struct
from standardwebhooks import Webhook
from yarl import URL

from penstock.webhooks.egress import EgressDenied, EgressPolicy

# Bounds of one request. Only the status of the response matters.
REQUEST_TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 65_536
GONE = 410


class WebhookRequest(Struct, frozen=True):
    """`id` stays the same across retries, so receivers can deduplicate."""

    url: str
    id: str
    body: bytes
    secrets: Sequence[str]


class WebhookResult(Struct, frozen=True):
    """`status` is None without a response; `trouble` then has the reason."""

    status: int | None
    trouble: str = ""

    @property
    def good(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """The receiver asked to stop (410)."""
        return self.status == GONE

    def __str__(self) -> str:
        if self.status is None:
            return self.trouble
        moved = "; redirects are not followed" if 300 <= self.status < 400 else ""
        return f"status {self.status}{moved}"


class WebhookSender:
    """Holds the HTTP session of one event loop, opened on first use."""

    def __init__(self, reach: EgressPolicy, timeout: float = REQUEST_TIMEOUT_S) -> None:
        self.reach = reach
        self.timeout = timeout
        self.session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self.session is not None:
            await self.session.close()
            self.session = None

    def ensure_session(self) -> aiohttp.ClientSession:
        if self.session is None:
            # No DNS cache: the policy checks the address of each connection.
            connector = aiohttp.TCPConnector(
                socket_factory=self.reach.open_socket, use_dns_cache=False, limit=0
            )
            self.session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self.timeout),
                auto_decompress=False,
                trust_env=False,
            )
        return self.session

    async def post(self, request: WebhookRequest) -> WebhookResult:
        """Sends a webhook. Errors become a result, not an exception."""
        try:
            async with self.ensure_session().post(
                URL(request.url, encoded=True),
                data=request.body,
                headers=make_headers(request, datetime.now(UTC)),
                allow_redirects=False,
            ) as response:
                await drain(response)
                return WebhookResult(response.status)
        except TimeoutError:
            return WebhookResult(None, f"no response within {self.timeout:g} s")
        except (aiohttp.ClientError, ValueError) as error:
            return WebhookResult(None, describe_error(error))


async def drain(response: aiohttp.ClientResponse) -> None:
    """Reads and discards the response. Closes the connection if it is too long."""
    read = 0
    async for chunk in response.content.iter_any():
        read += len(chunk)
        if read > MAX_RESPONSE_BYTES:
            response.close()
            return


def make_headers(request: WebhookRequest, now: datetime) -> dict[str, str]:
    text = request.body.decode()
    signatures = [Webhook(secret).sign(request.id, now, text) for secret in request.secrets]
    return {
        "content-type": "application/json",
        "user-agent": "penstock",
        "webhook-id": request.id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def describe_error(error: Exception) -> str:
    """Describes an error without revealing resolved addresses."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "connection failed: host name not found"
        case aiohttp.ClientConnectorCertificateError():
            return "connection failed: invalid certificate"
        case aiohttp.ClientConnectorError(os_error=EgressDenied() as beyond):
            return f"not sent: {beyond}"
        case aiohttp.ClientConnectorError(os_error=OSError(strerror=str(why))):
            return f"connection failed: {why.partition(' (')[0]}"
    return f"no response: {type(error).__name__}"
