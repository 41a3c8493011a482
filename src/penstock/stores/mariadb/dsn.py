"""Parses the store URL and opens sessions with our settings."""

import asyncio
import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote

import asyncmy
from asyncmy.constants import CLIENT
from msgspec import Struct

from penstock.errors import InvalidInput, StoreUnreachable, StoreUnusable
from penstock.store import Durability
from penstock.stores.mariadb.connection import DEADLINE, MariaConnection
from penstock.stores.mariadb.errors import ERRORS, translate_error
from penstock.stores.urls import make_url_error, split, take_durability, take_pool_size

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
OLDEST = (10, 6)


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
            async with asyncio.timeout(DEADLINE):
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
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
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
