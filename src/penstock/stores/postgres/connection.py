"""Parses the store URL, opens connections with our settings, and pools them."""

import os
import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

import asyncpg
from msgspec import Struct

from penstock.errors import InvalidInput, PenstockError
from penstock.store import Durability
from penstock.stores import pool
from penstock.stores.postgres.errors import ERRORS, is_connection_gone, translate_error
from penstock.stores.urls import make_url_error, split, take_durability, take_pool_size

# Time limit of every call, in seconds.
CALL_TIMEOUT_S = 5.0
# For a statement over whole tables.
SCAN_TIMEOUT_S = 600.0
# Fixed plans: a table analyzed while empty must not lead to a scan or sort after it grew, and
# a claim must not be planned on every call.
SETTINGS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "synchronous_commit": "on",
    # A batch must not wait for a row locked by another transaction.
    "lock_timeout": "10",
    # Longer than any of our calls; the server drops the locks of a vanished client after it.
    "idle_in_transaction_session_timeout": "10000",
}
HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:(?P<port>\d*))?")
LAST_PORT = 65_535


class PostgresConnection(asyncpg.Connection):
    """A connection that is safe to inherit.

    A forked child shares the parent's epoll; closing the copy, as Python does at exit, would
    unregister the parent's socket."""

    __slots__ = ("process",)

    def __init__(self, *parts: Any, **named_parts: Any) -> None:
        self.process = os.getpid()
        super().__init__(*parts, **named_parts)

    def terminate(self) -> None:
        if self.process == os.getpid():
            super().terminate()

    def __del__(self) -> None:
        if self.process == os.getpid():
            super().__del__()


def is_harmless(error: BaseException) -> bool:
    """True if the session can be reused after this error."""
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        # After a failover another server accepts writes; a new connection finds it.
        return False
    return isinstance(error, PenstockError | asyncpg.PostgresError) and not is_connection_gone(
        error
    )


class PostgresPool(pool.ConnectionPool[asyncpg.Connection]):
    def is_harmless(self, error: BaseException) -> bool:
        return is_harmless(error)

    async def leave(self, connection: asyncpg.Connection) -> None:
        try:
            await connection.close(timeout=1.0)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection.terminate()


class PostgresDsn(Struct, frozen=True):
    """A parsed store URL. `pooler`: connections pass through PgBouncer in transaction mode."""

    url: str
    where: str
    durability: Durability = "safe"
    pool_size: int = 8
    pooler: bool = False

    async def connect(self) -> asyncpg.Connection:
        return await self.connect_with(SETTINGS, CALL_TIMEOUT_S)

    async def connect_aside(self) -> asyncpg.Connection:
        """Opens a connection for work that needs no durable commit."""
        return await self.connect_with(SETTINGS | {"synchronous_commit": "off"}, CALL_TIMEOUT_S)

    async def connect_with(
        self, settings: dict[str, str], deadline: float | None = None
    ) -> asyncpg.Connection:
        """Opens a connection; `deadline` is the default timeout of its calls."""
        options: dict[str, Any] = {
            "server_settings": settings | {"application_name": "penstock"},
            # Statements stay prepared. By default they are prepared again after 300 seconds.
            "max_cached_statement_lifetime": 0,
        }
        if self.pooler:
            options = {"statement_cache_size": 0}
        try:
            return await asyncpg.connect(
                self.url,
                timeout=CALL_TIMEOUT_S,
                command_timeout=deadline,
                connection_class=PostgresConnection,
                **options,
            )
        except (ValueError, asyncpg.UndefinedObjectError) as error:
            raise InvalidInput(f"store url of {self.where}: {error}") from None
        except ERRORS as error:
            raise translate_error(error, self.where) from error


def parse(url: str) -> PostgresDsn:
    """Takes durability, pool_size and pooler; passes other options to the driver."""
    parts = split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not is_readable(parts, options):
        raise make_url_error(url)
    durability = take_durability(options)
    pooler = options.pop("pooler", "off")
    if pooler not in ("on", "off"):
        raise InvalidInput("store url: pooler must be on or off")
    size = take_pool_size(options)
    place = parts.netloc.rpartition("@")[2] or "localhost"
    where = f"postgresql://{place}{parts.path}"
    plain = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
    return PostgresDsn(plain, where, durability, size, pooler == "on")


def is_readable(parts: SplitResult, options: dict[str, str]) -> bool:
    """False if a stray @ shows that part of a password was parsed as something else."""
    credentials, _, place = parts.netloc.rpartition("@")
    if any("@" in part for part in (credentials, parts.path, parts.fragment, *options)):
        return False
    hosts = [HOST.fullmatch(host) for host in place.split(",")]
    return all(host and int(host["port"] or 0) <= LAST_PORT for host in hosts)
