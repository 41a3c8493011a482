"""Parses store URLs and redacts their passwords."""

import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.store import Durability

SCHEME = re.compile(r"[a-z0-9+.-]*://", re.IGNORECASE)


def split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        # Its message contains the URL, and so the password.
        raise make_url_error(url) from None


def make_url_error(url: str) -> InvalidInput:
    return InvalidInput(
        f"store url {redact_url(url)!r} cannot be read: a port is a number up to 65535;"
        " in a password, write / ? # @ as %2F %3F %23 %40"
    )


def redact_url(url: str) -> str:
    """Drops everything before the last @, since a password may contain URL delimiters."""
    if url.startswith("sqlite:///"):
        return url
    scheme = SCHEME.match(url)
    begin = scheme.group() if scheme else ""
    place, _, options = url.removeprefix(begin).partition("?")
    if "@" in options or "password" in place:
        return f"{begin}..."
    return begin + place.rpartition("@")[2]


def get_file_path(url: str) -> str | None:
    """Returns the file of a SQLite store; None for one in memory or another kind of store."""
    scheme, _, path = url.partition("?")[0].partition(":///")
    return None if scheme != "sqlite" or path in ("", ":memory:") else path


def take_durability(options: dict[str, str], *more: "Durability") -> "Durability":
    known: tuple[Durability, ...] = ("safe", "fast", *more)
    given = options.pop("durability", "safe")
    for durability in known:
        if durability == given:
            return durability
    raise InvalidInput(f"store url: durability must be {', '.join(known[:-1])} or {known[-1]}")


def take_pool_size(options: dict[str, str]) -> int:
    size = options.pop("pool_size", "8")
    if not size.isdecimal() or not 2 <= int(size) <= 1_000:
        raise InvalidInput("store url: pool_size must be a number from 2 to 1000")
    return int(size)
