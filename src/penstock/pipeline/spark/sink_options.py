"""What a writer of the format penstock was asked for."""

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
# With a key behind it, it is to fit in a dedup key.
MAX_NAME_LENGTH = 64


class SinkOptions(Struct, frozen=True):
    """Where rows go, and under which name their keys are kept."""

    url: str
    name: str
    # For rows that name none.
    queue: str | None = None
    scope: str = "default"
    # Rows a second, of one task.
    rate: float | None = None
    # What becomes of a row whose key was published with another body.
    conflict: Literal["refuse", "ignore"] = "refuse"
    # False: every row is looked at, and none is published.
    publish: bool = True
    # A file that says in the end how many were published.
    report: str | None = None


def parse_sink_options(given: MutableMapping[str, str]) -> SinkOptions:
    options = normalize_options(given, KNOWN_OPTIONS)
    return SinkOptions(
        make_absolute_url(require_url(options)),
        check_sink_name(options.get("name")),
        options.get("queue"),
        options.get("scope", "default"),
        None if "rate" not in options else parse_rate(options["rate"]),
        parse_conflict(options.get("conflict", "refuse")),
        options.get("publish", "true") == "true",
        options.get("report"),
    )


def check_sink_name(name: str | None) -> str:
    if not name or len(name) > MAX_NAME_LENGTH:
        raise InvalidInput(
            f"format penstock needs an option name of 1 to {MAX_NAME_LENGTH} characters to write:"
            " under one name a key is published once"
        )
    return name


def parse_rate(text: str) -> float:
    """Rows a second: 50, or 50/s."""
    try:
        rate = float(text.strip().removesuffix("/s"))
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise InvalidInput(f"rate {text!r} is not a number above 0, like 50/s")
    return rate


def parse_conflict(text: str) -> Literal["refuse", "ignore"]:
    if text == "ignore":
        return "ignore"
    if text != "refuse":
        raise InvalidInput(f"conflict is refuse or ignore, not {text!r}")
    return "refuse"
