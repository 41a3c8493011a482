"""Writer options of the penstock format."""

from collections.abc import MutableMapping
from typing import Literal

from msgspec import Struct

from penstock.errors import InvalidInput
from penstock.pipeline.spark.options import normalize_options, require_url
from penstock.pipeline.store_access import make_absolute_url

KNOWN_OPTIONS = {
    "url", "queue", "name", "scope", "rate", "conflict", "publish", "report", "path",
    "checkpointlocation",
}  # fmt: skip
# The name and a row's key must fit in a dedup key.
MAX_NAME_LENGTH = 64


class SinkOptions(Struct, frozen=True):
    """Options of the sink. `name` scopes the keys of rows."""

    url: str
    name: str
    # Default for rows without a queue.
    queue: str | None = None
    scope: str = "default"
    # Rows per second and task.
    rate: float | None = None
    # Applies to a row whose key was published with a different body.
    conflict: Literal["refuse", "ignore"] = "refuse"
    # If False, rows are validated and not published.
    publish: bool = True
    # A lake file for the final counts.
    report: str | None = None


def parse_sink_options(given: MutableMapping[str, str]) -> SinkOptions:
    options = normalize_options(given, KNOWN_OPTIONS)
    return SinkOptions(
        url=make_absolute_url(require_url(options)),
        name=check_sink_name(options.get("name")),
        queue=options.get("queue"),
        scope=options.get("scope", "default"),
        rate=None if "rate" not in options else parse_rate(options["rate"]),
        conflict=parse_conflict(options.get("conflict", "refuse")),
        publish=options.get("publish", "true") == "true",
        report=options.get("report"),
    )


def check_sink_name(name: str | None) -> str:
    if not name or len(name) > MAX_NAME_LENGTH:
        raise InvalidInput(
            f"to write, the format penstock needs the option name of 1 to {MAX_NAME_LENGTH}"
            " characters; each key is published once per name"
        )
    return name


def parse_rate(text: str) -> float:
    """Parses rows per second: 50 or 50/s."""
    try:
        rate = float(text.strip().removesuffix("/s"))
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise InvalidInput(f"rate must be a positive number such as 50/s, not {text!r}")
    return rate


def parse_conflict(text: str) -> Literal["refuse", "ignore"]:
    if text == "ignore":
        return "ignore"
    if text != "refuse":
        raise InvalidInput(f"conflict must be refuse or ignore, not {text!r}")
    return "refuse"
