"""Parses the store URL, and opens connections that detect a restarted or moved server."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

import msgspec
from hiredis import pack_command
from msgspec import Struct
from redis.asyncio.connection import Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, NoScriptError

from penstock.errors import InvalidInput
from penstock.retry_policies import MOVED, Retries
from penstock.store import Durability
from penstock.stores import pool
from penstock.stores.redis.errors import ERRORS, is_connection_gone, translate_error
from penstock.stores.redis.scripts import Script, load_script
from penstock.stores.urls import make_url_error, split, take_durability, take_pool_size

CALL_TIMEOUT_S = 5.0
# The only schema so far.
SCHEMA = 2
PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class RedisDsn(Struct, frozen=True):
    """A parsed store URL. All keys share a hash tag, so one cluster shard has the store."""

    where: str
    options: dict[str, Any]
    durability: Durability = "safe"
    pool_size: int = 8
    prefix: str = "penstock"

    def key(self, name: str) -> bytes:
        return f"{{{self.prefix}}}:{name}".encode()

    def connection(self) -> Connection:
        """Returns an unopened connection without retries: a command sent may have run."""
        options = dict(self.options)
        kind = options.pop("connection_class", Connection)
        opened: Connection = kind(
            **options,
            protocol=2,
            socket_timeout=None,
            socket_connect_timeout=CALL_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
        )
        return opened


def parse(url: str) -> RedisDsn:
    """Takes durability, pool_size and prefix; passes other options to the driver."""
    parts = split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    durability = take_durability(options, "trusted")
    size = take_pool_size(options)
    prefix = options.pop("prefix", "penstock")
    if not PREFIX.fullmatch(prefix):
        raise InvalidInput("store url: prefix must be up to 100 letters, digits, _, . and -")
    credentials, _, place = parts.netloc.rpartition("@")
    strays = any("@" in part for part in (credentials, parts.path, parts.fragment, *options))
    if strays or not has_port(parts):
        raise make_url_error(url)
    return RedisDsn(
        f"{parts.scheme}://{place or 'localhost'}{parts.path}",
        driver_options(
            urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(options), ""))
        ),
        durability,
        size,
        prefix,
    )


def has_port(parts: SplitResult) -> bool:
    """True if the port is valid or absent."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def driver_options(url: str) -> dict[str, Any]:
    try:
        options: dict[str, Any] = dict(parse_url(url))
        # Only the constructor validates the options.
        options.get("connection_class", Connection)(
            **{name: value for name, value in options.items() if name != "connection_class"}
        )
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"store url: {error}") from None
    return options


class RedisConnection:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.process = os.getpid()

    async def open(self) -> None:
        connect: Callable[[], Awaitable[None]] = self.connection.connect
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await connect()

    async def ask(self, *words: Any) -> Any:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            try:
                await self.connection.send_packed_command(pack_command(words), check_health=False)
            except RuntimeError as error:
                # uvloop raises it for a closed connection.
                raise ConnectionResetError(str(error)) from error
            return await self.connection.read_response()

    async def run(self, script: Script, keys: list[bytes], arguments: list[Any]) -> Any:
        count = len(keys)
        try:
            return await self.ask(b"EVALSHA", script.digest, count, *keys, *arguments)
        except NoScriptError:
            # A restarted server has lost its scripts.
            return await self.ask(b"EVAL", script.text, count, *keys, *arguments)

    def is_closed(self) -> bool:
        reader, writer = self.connection._reader, self.connection._writer
        if reader is None or writer is None:
            return True
        return reader.at_eof() or reader.exception() is not None or writer.is_closing()

    def terminate(self) -> None:
        """Closes the socket, unless this is a forked child: the parent still uses it."""
        writer = self.connection._writer
        if writer is not None and self.process == os.getpid():
            writer.transport.abort()
        self.connection._reader = self.connection._writer = None


class RedisPool(pool.ConnectionPool[RedisConnection]):
    def is_harmless(self, error: BaseException) -> bool:
        return isinstance(error, Exception) and not is_connection_gone(error)

    async def leave(self, connection: RedisConnection) -> None:
        connection.terminate()


class RedisConnector:
    """Checks the server's run id in every session; the first after a restart skips lost ids."""

    def __init__(self, address: RedisDsn) -> None:
        self.address = address
        self.run = ""

    async def session(self) -> RedisConnection:
        retries: Retries | None = None
        while True:
            session = await self.plain_session()
            try:
                await self.meet(session)
            except BaseException as error:
                session.terminate()
                if isinstance(error, MovedError):
                    self.move(error)
                    retries = retries or MOVED.begin()
                    if await retries.again():
                        continue
                if isinstance(error, ERRORS):
                    raise translate_error(error, self.address.where) from error
                raise
            return session

    async def plain_session(self) -> RedisConnection:
        session = RedisConnection(self.address.connection())
        try:
            await session.open()
        except ERRORS as error:
            session.terminate()
            raise translate_error(error, self.address.where) from error
        except BaseException:
            session.terminate()
            raise
        return session

    def move(self, error: MovedError) -> None:
        """Moves to the cluster shard that has the store."""
        options = self.address.options | {"host": error.host or self.address.options["host"]}
        options["port"] = error.port
        self.address = msgspec.structs.replace(self.address, options=options)

    async def meet(self, session: RedisConnection) -> None:
        run = read_reply(await session.ask("INFO", "server")).get("run_id", "")
        if run != self.run:
            meet = load_script("meet")
            keys = [self.address.key(name) for name in meet.keys]
            doubtful = "1" if self.address.durability == "fast" else "0"
            await session.run(meet, keys, ["", run, doubtful])
            self.run = run


def read_reply(text: Any) -> dict[str, str]:
    """Parses the reply of INFO."""
    lines = str(text, "utf-8", "replace").splitlines() if isinstance(text, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)
