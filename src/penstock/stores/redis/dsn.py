"""Parses the store URL and names the store's keys."""

import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

from msgspec import Struct
from redis.asyncio.connection import Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from penstock.errors import InvalidInput
from penstock.store import Durability
from penstock.stores.urls import make_url_error, split, take_durability, take_pool_size

DEADLINE = 5.0
# The only schema so far.
SCHEMA = 1
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
            socket_connect_timeout=DEADLINE,
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
