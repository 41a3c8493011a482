"""Parses the store URL and opens connections, which send several statements as one packet."""

import asyncio
import os
import re
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote

import asyncmy
from asyncmy.constants import CLIENT
from msgspec import Struct

from penstock.errors import (
    InvalidInput,
    OutcomeUnknown,
    PenstockError,
    StoreUnreachable,
    StoreUnusable,
)
from penstock.store import Durability
from penstock.stores import pool
from penstock.stores.mariadb.errors import ERRORS, is_connection_gone, is_read_only, translate_error
from penstock.stores.urls import make_url_error, split, take_durability, take_pool_size

# Time limit of every call, in seconds.
CALL_TIMEOUT_S = 5.0
# For a statement over whole tables.
SCAN_TIMEOUT_S = 600.0
# In UTC, because local time goes back once a year.
MOMENT = "timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(6))"
# Overrides server defaults: overlong values must fail, and a claim must not lock gaps.
SETTINGS = {
    "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'",
    "time_zone": "'+00:00'",
    # Bounds waits for locked rows and for DDL, in seconds.
    "innodb_lock_wait_timeout": "1",
    "lock_wait_timeout": "5",
    "auto_increment_increment": "1",
    "auto_increment_offset": "1",
    # Plan long IN lists by index dives, not by statistics.
    "eq_range_index_dive_limit": "0",
    # Longer than any of our calls; the server drops the locks of a vanished client after it.
    "idle_transaction_timeout": "10",
}
MIN_VERSION = (10, 6)


class StatementOutcome(NamedTuple):
    """The result of one statement: its rows, the number of changed rows, and the first new
    AUTO_INCREMENT id."""

    rows: tuple[Any, ...] | None
    changed: int
    first: int

    @property
    def row_list(self) -> list[Any]:
        return list(self.rows or ())


class MariaConnection:
    """A connection that a forked child does not close, because its parent still uses it."""

    def __init__(self, connection: Any, most: int = 16 * 1024 * 1024) -> None:
        self.connection = connection
        self.process = os.getpid()
        self.ended = False
        # max_allowed_packet, in bytes.
        self.most = most
        self.deadline: float | None = CALL_TIMEOUT_S

    async def send(self, *statements: str) -> list[StatementOutcome]:
        text = ";\n".join(statements).encode()
        if len(text) >= self.most:
            raise InvalidInput(
                f"a request of {len(text)} bytes exceeds the server's max_allowed_packet"
                f" of {self.most} bytes; send smaller batches or raise it"
            )
        async with asyncio.timeout(self.deadline):
            await self.connection.query(text)
            outcomes = [self.read_outcome()]
            while self.connection._result.has_next:
                await self.connection.next_result()
                outcomes.append(self.read_outcome())
        return outcomes

    async def scan(self, statement: str) -> list[StatementOutcome]:
        """Sends a statement that may take minutes."""
        self.deadline = SCAN_TIMEOUT_S
        try:
            return await self.send(statement)
        finally:
            self.deadline = CALL_TIMEOUT_S

    def read_outcome(self) -> StatementOutcome:
        result = self.connection._result
        return StatementOutcome(result.rows, result.affected_rows, result.insert_id)

    async def rows(self, *statements: str) -> list[Any]:
        """Returns the rows of the last statement that has any."""
        return last_rows(await self.send(*statements))

    def is_closed(self) -> bool:
        """True if we or the server closed it, as far as we know."""
        return self.ended or bool(self.connection._stream_broken)

    def terminate(self) -> None:
        self.ended = True
        if self.process == os.getpid():
            self.connection.close()

    async def leave(self) -> None:
        try:
            async with asyncio.timeout(1.0):
                await self.connection.ensure_closed()
        except (OSError, TimeoutError):
            self.terminate()


def last_rows(outcomes: list[StatementOutcome]) -> list[Any]:
    for outcome in reversed(outcomes):
        if outcome.rows is not None:
            return list(outcome.rows)
    return []


class MariaPool(pool.ConnectionPool[MariaConnection]):
    def is_harmless(self, error: BaseException) -> bool:
        # After a failover another server accepts writes; a new session finds it.
        if (
            is_connection_gone(error)
            or is_read_only(error)
            or isinstance(error, OutcomeUnknown | StoreUnreachable)
        ):
            return False
        return isinstance(error, (PenstockError, *ERRORS))

    async def leave(self, connection: MariaConnection) -> None:
        await connection.leave()


class MariaDsn(Struct, frozen=True):
    host: str
    port: int
    user: str
    password: str
    database: str
    where: str
    durability: Durability = "safe"
    pool_size: int = 8
    # URL of a Redis that carries wake-ups between processes; None polls the server.
    wake: str | None = None
    # SQL expression of the server's time.
    moment: str = MOMENT

    async def connect(self) -> MariaConnection:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                connection = await asyncmy.connect(
                    host=self.host, port=self.port, user=self.user, password=self.password,
                    database=self.database, autocommit=None, charset="utf8mb4",
                    program_name="penstock",
                    client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS,
                )  # fmt: skip
        except RuntimeError as error:
            # The driver raises it for a socket that is already closed.
            raise StoreUnreachable(f"{self.where} cannot be reached: {error}") from error
        except ERRORS as error:
            raise translate_error(error, self.where) from error
        refuse_other(self.where, connection.get_server_info())
        return await self.prepare_session(MariaConnection(connection))

    async def prepare_session(self, session: MariaConnection) -> MariaConnection:
        settings = ", ".join(f"SESSION {name} = {value}" for name, value in SETTINGS.items())
        try:
            ((most,),) = await session.rows(
                f"SET SESSION autocommit = 1, {settings}",
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                "SELECT @@max_allowed_packet",
            )
        except ERRORS as error:
            session.terminate()
            raise translate_error(error, self.where) from error
        session.most = most
        return session


def refuse_other(where: str, version: str) -> None:
    """Refuses other servers before sending statements they would not understand."""
    if "mariadb" not in version.lower():
        raise StoreUnusable(
            f"{where}: the server is MySQL {version}; Penstock needs MariaDB for"
            " DELETE ... RETURNING"
        )
    # MariaDB prefixes its version with 5.5.5- for old clients.
    found = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < MIN_VERSION:
        raise StoreUnusable(f"{where}: MariaDB {version} is too old; 10.6 or newer is needed")


def parse(url: str) -> MariaDsn:
    parts = split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    durability = take_durability(options)
    size = take_pool_size(options)
    wake = options.pop("wake", None)
    if options:
        raise InvalidInput(f"store url: no option named {', '.join(options)}")
    return MariaDsn(**place(url, parts), durability=durability, pool_size=size, wake=wake)


def place(url: str, parts: SplitResult) -> dict[str, Any]:
    """Parses user, host and database."""
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise InvalidInput("store url: name one database, as in mariadb://user@host/database")
    try:
        port = parts.port or 3306
    except ValueError:
        raise make_url_error(url) from None
    host = parts.hostname or "localhost"
    return {
        "host": host,
        "port": port,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "database": database,
        "where": f"mariadb://{host}:{port}/{database}",
    }
