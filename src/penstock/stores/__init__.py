"""Opens the store a URL names."""

from urllib.parse import parse_qs, urlsplit

from penstock.errors import InvalidInput
from penstock.store import Clock, Durability, Store

DURABILITIES: dict[str, Durability] = {"safe": "safe", "fast": "fast"}


async def open(url: str, *, clock: Clock | None = None) -> Store:
    """`sqlite:///file.db`, `sqlite:////absolute/file.db`, or `sqlite://` for one in memory;
    `postgresql://user@host/database`.

    `?durability=fast` gives up the last second of commits to a power cut for speed.
    """
    parts = urlsplit(url)
    if parts.scheme in ("postgresql", "postgres"):
        return await open_server(url, clock)
    given = parse_qs(parts.query, keep_blank_values=True)
    options = {name: values[-1] for name, values in given.items()}
    if parts.scheme != "sqlite":
        raise InvalidInput(f"store url {url!r} does not begin with sqlite: or postgresql:")
    if parts.netloc:
        raise InvalidInput(f"store url {url!r} has a host; a file is sqlite:///name.db")
    if parts.fragment:
        raise InvalidInput(f"store url {url!r} has a '#', which means nothing here")
    durability = DURABILITIES.get(options.pop("durability", "safe"))
    if durability is None:
        raise InvalidInput(f"store url {url!r}: durability is safe or fast")
    if options:
        raise InvalidInput(f"store url {url!r}: no option named {', '.join(options)}")
    from penstock.stores.sqlite.open import open_sqlite

    path = parts.path.removeprefix("/")
    return await open_sqlite("" if path == ":memory:" else path, durability=durability, clock=clock)


async def open_server(url: str, clock: Clock | None) -> Store:
    try:
        from penstock.stores.postgres.open import open_postgres
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{error}: install penstock[postgres]") from None
    return await open_postgres(url, clock=clock)
