"""Opens, migrates and checks the store that a URL names."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

from penstock.errors import InvalidInput
from penstock.extras import require_extra
from penstock.stores.urls import redact_url, split, take_durability

if TYPE_CHECKING:
    from penstock.store import Clock, Durability, Store

# URL scheme -> package of a server store; the package's driver is an extra of the same name.
SERVERS = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mariadb": "mariadb",
    "mysql": "mariadb",
    "redis": "redis",
    "rediss": "redis",
}


async def open(url: str, *, clock: "Clock | None" = None) -> "Store":
    """Opens `sqlite:///file.db`, `sqlite:////absolute/file.db`, or `sqlite://` for one in memory;
    `postgresql://user@host/database`; `mariadb://user@host/database`; `redis://host:6379/0`.

    `?mode=ro` opens a SQLite file for reading only. `?durability=fast` is faster, but a power cut
    may lose the last second of commits.
    """
    if (package := SERVERS.get(split(url).scheme)) is not None:
        store: Store = await load_store(package).open_store(url, clock=clock)
        return store
    path, durability, read_only = parse_file(url)
    from penstock.stores.sqlite.store import open_sqlite

    return await open_sqlite(path, durability=durability, clock=clock, read_only=read_only)


def preload(url: str) -> None:
    """Imports the modules `open` needs."""
    if (package := SERVERS.get(split(url).scheme)) is not None:
        load_store(package)
    else:
        import_module("penstock.stores.sqlite.store")


async def exists(url: str) -> bool:
    """Returns whether the store exists, without creating it. An in-memory store always does."""
    if (package := SERVERS.get(split(url).scheme)) is not None:
        there: bool = await load_store(package).exists(url)
        return there
    path = parse_file(url).path
    from penstock.stores.sqlite.store import has_tables

    return not path or has_tables(path)


async def migrate(url: str, *, plan: bool = False) -> list[str]:
    """Brings the store up to date and returns the steps taken; with `plan`, only lists them."""
    if (package := SERVERS.get(split(url).scheme)) is not None:
        steps: list[str] = await load_store(package).upgrade(url, plan=plan)
        return steps
    path, durability, _ = parse_file(url)
    from penstock.stores.sqlite.store import upgrade

    return await upgrade(path, durability, plan=plan)


def load_store(package: str) -> ModuleType:
    """Imports on demand, because the driver is an optional extra."""
    with require_extra(package):
        return import_module(f"penstock.stores.{package}.store")


class SqliteUrl(NamedTuple):
    """The parts of a SQLite URL. The path is empty for a store in memory."""

    path: str
    durability: "Durability"
    read_only: bool


def parse_file(url: str) -> SqliteUrl:
    parts = split(url)
    given = parse_qs(parts.query, keep_blank_values=True)
    options = {name: values[-1] for name, values in given.items()}
    if parts.scheme in ("http", "https"):
        raise InvalidInput(
            f"{redact_url(url)!r} is a server; apps and workers accept it, but this needs the URL"
            " of the store, which begins with sqlite:, postgresql:, mariadb: or redis:"
        )
    if parts.scheme != "sqlite":
        raise InvalidInput(
            f"store url {redact_url(url)!r} does not begin with"
            " sqlite:, postgresql:, mariadb: or redis:"
        )
    if parts.netloc:
        raise InvalidInput(f"store url {redact_url(url)!r} has a host; a file is sqlite:///name.db")
    if parts.fragment:
        raise InvalidInput(
            f"store url {redact_url(url)!r} has a fragment ('#'), which is not supported"
        )
    durability = take_durability(options)
    mode = options.pop("mode", "rw")
    if mode not in ("ro", "rw"):
        raise InvalidInput("store url: mode must be ro or rw")
    if options:
        raise InvalidInput(f"store url {redact_url(url)!r}: no option named {', '.join(options)}")
    path = parts.path.removeprefix("/")
    return SqliteUrl("" if path == ":memory:" else path, durability, mode == "ro")
