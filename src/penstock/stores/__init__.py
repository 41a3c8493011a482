"""Opens the store a URL names."""

from urllib.parse import parse_qs

from penstock.errors import InvalidInput
from penstock.store import Clock, Durability, Store
from penstock.stores.urls import split, told

DURABILITIES: dict[str, Durability] = {"safe": "safe", "fast": "fast"}
MARIADB = ("mariadb", "mysql")


async def open(url: str, *, clock: Clock | None = None) -> Store:
    """`sqlite:///file.db`, `sqlite:////absolute/file.db`, or `sqlite://` for one in memory;
    `postgresql://user@host/database`; `mariadb://user@host/database`.

    `?durability=fast` gives up the last second of commits to a power cut for speed.
    """
    if on_server(url):
        return await open_server(url, clock)
    path, durability = parse_file(url)
    from penstock.stores.sqlite.open import open_sqlite

    return await open_sqlite(path, durability=durability, clock=clock)


async def migrate(url: str, *, plan: bool = False) -> list[str]:
    """The steps that brought the store up to date; with `plan`, those that would."""
    if on_server(url):
        return await migrate_server(url, plan)
    path, durability = parse_file(url)
    from penstock.stores.sqlite.upgrade import upgrade

    return await upgrade(path, durability, plan=plan)


def on_server(url: str) -> bool:
    return split(url).scheme in ("postgresql", "postgres", *MARIADB)


def parse_file(url: str) -> tuple[str, Durability]:
    """The path of the file, empty for one in memory."""
    parts = split(url)
    given = parse_qs(parts.query, keep_blank_values=True)
    options = {name: values[-1] for name, values in given.items()}
    if parts.scheme != "sqlite":
        raise InvalidInput(
            f"store url {told(url)!r} does not begin with sqlite:, postgresql: or mariadb:"
        )
    if parts.netloc:
        raise InvalidInput(f"store url {told(url)!r} has a host; a file is sqlite:///name.db")
    if parts.fragment:
        raise InvalidInput(f"store url {told(url)!r} has a '#', which means nothing here")
    durability = DURABILITIES.get(options.pop("durability", "safe"))
    if durability is None:
        raise InvalidInput(f"store url {told(url)!r}: durability is safe or fast")
    if options:
        raise InvalidInput(f"store url {told(url)!r}: no option named {', '.join(options)}")
    path = parts.path.removeprefix("/")
    return "" if path == ":memory:" else path, durability


async def open_server(url: str, clock: Clock | None) -> Store:
    if split(url).scheme in MARIADB:
        return await open_mariadb(url, clock)
    try:
        from penstock.stores.postgres.open import open_postgres
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{error}: install penstock[postgres]") from None
    return await open_postgres(url, clock=clock)


async def migrate_server(url: str, plan: bool) -> list[str]:
    if split(url).scheme in MARIADB:
        return await migrate_mariadb(url, plan)
    try:
        from penstock.stores.postgres.upgrade import upgrade
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{error}: install penstock[postgres]") from None
    return await upgrade(url, plan=plan)


async def open_mariadb(url: str, clock: Clock | None) -> Store:
    try:
        from penstock.stores.mariadb import open as opening
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{error}: install penstock[mariadb]") from None
    return await opening.open_mariadb(url, clock=clock)


async def migrate_mariadb(url: str, plan: bool) -> list[str]:
    try:
        from penstock.stores.mariadb.upgrade import upgrade
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{error}: install penstock[mariadb]") from None
    return await upgrade(url, plan=plan)
