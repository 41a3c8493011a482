"""Reader options of the penstock format."""

from collections.abc import Collection, Mapping, MutableMapping
from typing import Any

from msgspec import Struct

from penstock.errors import InvalidInput
from penstock.pipeline.lake.schema import Table, choose_columns, get_table
from penstock.pipeline.store_access import make_absolute_url

KNOWN_OPTIONS = {
    "url", "table", "columns", "partitionrows", "maxrowspertrigger", "until", "path", "pushfilters",
}  # fmt: skip
PARTITION_ROWS = 100_000


class ReaderOptions(Struct, frozen=True):
    url: str
    table: Table
    columns: tuple[str, ...]
    # Approximate rows per task.
    rows: int
    # Maximum rows per micro-batch.
    limit: int | None
    # The last position of a batch read; None reads to the end.
    until: int | None
    # Apply pushed-down filters in the source.
    push_filters: bool = False

    @property
    def schema(self) -> Any:
        return choose_columns(self.table, self.columns)


def parse(given: MutableMapping[str, str]) -> ReaderOptions:
    options = normalize_options(given, KNOWN_OPTIONS)
    return ReaderOptions(
        url=make_absolute_url(require_url(options)),
        table=get_table(options.get("table", "message")),
        columns=tuple(
            name.strip() for name in options.get("columns", "").split(",") if name.strip()
        ),
        rows=parse_int("partitionRows", options.get("partitionrows")) or PARTITION_ROWS,
        limit=parse_int("maxRowsPerTrigger", options.get("maxrowspertrigger")),
        until=parse_int("until", options.get("until"), 0),
        push_filters=parse_bool("pushFilters", options.get("pushfilters", "false")),
    )


def normalize_options(given: MutableMapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Returns the options by lowercase name, because Spark does not keep the case."""
    options = {name.lower(): value for name, value in given.items()}
    if unknown := options.keys() - set(known):
        raise InvalidInput(f"unknown option of the format penstock: {', '.join(sorted(unknown))}")
    return options


def require_url(options: Mapping[str, str]) -> str:
    if not options.get("url"):
        raise InvalidInput(
            "the format penstock needs the option url, for example sqlite:///penstock.db"
        )
    return options["url"]


def parse_bool(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidInput(f"{name} must be true or false, not {text!r}")
    return text.lower() == "true"


def parse_int(name: str, text: str | None, least: int = 1) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        raise InvalidInput(f"{name} must be an integer of at least {least}, not {text!r}")
    return int(text)
