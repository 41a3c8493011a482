"""Sends HTTP requests to the server and maps its errors."""

import asyncio
import atexit
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import aiohttp
import msgspec

from penstock import errors
from penstock.errors import (
    OutcomeUnknown,
    PenstockError,
    RateLimited,
    StoreBusy,
    StoreError,
    StoreUnreachable,
    TooManyWaiting,
)
from penstock.retry_policies import REMOTE_CALL, Retries, RetryPolicy

T = TypeVar("T")


class ListPage(Protocol):
    @property
    def cursor(self) -> str | None: ...


Page = TypeVar("Page", bound=ListPage)
# Timeout of one request, in addition to the wait of the call.
REQUEST_TIMEOUT_S = 30.0
# How long the end of a program may wait for its connections to close.
EXIT_TIMEOUT_S = 1.0
# Repeating them changes nothing.
SAFE_METHODS = frozenset({"GET", "PUT"})
# Errors that may be gone at the next attempt.
TRANSIENT = (StoreUnreachable, StoreBusy, OutcomeUnknown, RateLimited, TooManyWaiting)
encode = msgspec.json.Encoder().encode


def walk_errors(parent: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield parent
    for child in parent.__subclasses__():
        yield from walk_errors(child)


ERRORS_BY_CODE = {
    error.code: error for error in walk_errors(PenstockError) if error.__module__ == errors.__name__
}


class Failure(msgspec.Struct, frozen=True):
    code: str
    message: str
    details: list[dict[str, str]] = []


class Failed(msgspec.Struct, frozen=True):
    error: Failure


class Transport:
    """Holds the HTTP session of one event loop, opened on first use."""

    def __init__(
        self, url: str, timeout: float = REQUEST_TIMEOUT_S, key: str | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.key = key
        self.session: aiohttp.ClientSession | None = None

    def ensure_session(self) -> aiohttp.ClientSession:
        if self.session is None:
            # Unlimited connections, because most calls are long polls.
            connector = aiohttp.TCPConnector(limit=0)
            shown = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
            self.session = aiohttp.ClientSession(connector=connector, headers=shown)
            loop = asyncio.get_running_loop()
            self.at_exit = partial(close_at_exit, weakref.ref(self), loop)
            atexit.register(self.at_exit)
        return self.session

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        gives: type[T],
        scope: str | None = None,
        query: Mapping[str, Any] | None = None,
        wait: float = 0.0,
        again: bool = True,
        retry: RetryPolicy | None = None,
    ) -> T:
        """Returns the decoded response. `again` says that a lost response leaves no doubt."""
        _, answer = await self.exchange(
            method, path, body, scope=scope, query=query, wait=wait, again=again, retry=retry
        )
        return msgspec.json.decode(answer, type=gives)

    async def exchange(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        scope: str | None = None,
        query: Mapping[str, Any] | None = None,
        wait: float = 0.0,
        again: bool = True,
        retry: RetryPolicy | None = None,
    ) -> tuple[int, bytes]:
        """Returns the status and body. Raises on an error response. Repeats the call by `retry`,
        and reads by REMOTE_CALL."""
        sent = None if body is None else encode(body)
        query = {"scope": scope, **(query or {})}
        timeout = aiohttp.ClientTimeout(total=wait + self.timeout)
        policy = REMOTE_CALL if retry is None and method in SAFE_METHODS else retry
        retries: Retries | None = None
        while True:
            try:
                asked = self.ask(method, path, sent, query=query, timeout=timeout, again=again)
                async with asked as response:
                    return response.status, await response.read()
            except TRANSIENT:
                if policy is None:
                    raise
                retries = retries or policy.begin()
                if not await retries.again():
                    raise

    async def read_pages(
        self, path: str, gives: type[Page], query: Mapping[str, Any]
    ) -> AsyncIterator[Page]:
        """Yields the pages of a list."""
        cursor = None
        while True:
            page = await self.send("GET", path, gives=gives, query={**query, "cursor": cursor})
            yield page
            if (cursor := page.cursor) is None:
                return

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, data: Any = None, *, query: Mapping[str, Any] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Streams bodies of any length in both directions, with an idle timeout only."""
        timeout = aiohttp.ClientTimeout(None, sock_connect=self.timeout, sock_read=self.timeout)
        async with self.ask(method, path, data, query=query, timeout=timeout) as response:
            yield response

    @asynccontextmanager
    async def ask(
        self,
        method: str,
        path: str,
        data: Any,
        *,
        query: Mapping[str, Any] | None,
        timeout: aiohttp.ClientTimeout,
        again: bool = True,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yields an unread response. Raises on an error response."""
        given = [
            (name, format_query_value(each))
            for name, value in (query or {}).items()
            if value is not None
            for each in (value if isinstance(value, list) else (value,))
        ]
        try:
            async with self.ensure_session().request(
                method, self.url + path, data=data, params=given, timeout=timeout
            ) as response:
                if response.status >= 400:
                    raise decode_error(await response.read(), response.status)
                yield response
        except aiohttp.ClientConnectorError as error:
            raise StoreUnreachable(f"{self.url} cannot be reached: {error}") from None
        except (TimeoutError, aiohttp.ClientError) as error:
            raise self.make_unanswered_error(error, again) from None

    def make_unanswered_error(self, error: BaseException, again: bool) -> StoreError:
        text = f"no response from {self.url}: {str(error) or type(error).__name__}"
        return StoreUnreachable(text) if again else OutcomeUnknown(text)

    async def close(self) -> None:
        if self.session is not None:
            atexit.unregister(self.at_exit)
            session, self.session = self.session, None
            await session.close()


def close_at_exit(reference: "weakref.ref[Transport]", loop: asyncio.AbstractEventLoop) -> None:
    """Closes the session of a program that ends without `close`, if its loop runs in a thread."""
    transport = reference()
    if transport is not None and loop.is_running():
        closing = asyncio.run_coroutine_threadsafe(transport.close(), loop)
        with suppress(TimeoutError):
            closing.result(EXIT_TIMEOUT_S)


class RemoteGroup:
    """A group of operations over HTTP."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.send = transport.send


def format_query_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def decode_error(answer: bytes, status: int) -> PenstockError:
    """Rebuilds the server's error. Unknown codes of newer servers become StoreError."""
    try:
        failure = msgspec.json.decode(answer, type=Failed).error
    except msgspec.DecodeError:
        return StoreError(f"server returned status {status}: {answer[:200]!r}")
    return make_error(failure.code, failure.message, failure.details)


def make_error(code: str, text: str, details: list[dict[str, str]] | None = None) -> PenstockError:
    error = ERRORS_BY_CODE.get(code, StoreError)(text)
    error.details = tuple((each["field"], each["message"]) for each in details or ())
    return error
