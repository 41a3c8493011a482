"""Reads anomaly thresholds from a file and the command line."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.errors import InvalidInput
from penstock.model.anomalies import AnomalyThresholds


def load(path: str | None, changes: Sequence[str] = ()) -> AnomalyThresholds:
    """Loads a TOML file and applies NAME=VALUE overrides."""
    given = {} if path is None else read_file(path)
    for change in changes:
        name, mark, value = change.partition("=")
        if not mark:
            raise InvalidInput(f"a rule must be NAME=VALUE, not {change!r}")
        given[name.strip()] = value.split(",") if name.strip() == "off" else value.strip()
    return parse(given)


def read_file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InvalidInput(f"cannot read rules file {path!r}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"rules file {path!r} is not valid TOML: {error}") from None


def parse(given: Mapping[str, Any]) -> AnomalyThresholds:
    try:
        return msgspec.convert(given, AnomalyThresholds, strict=False)
    except msgspec.ValidationError as error:
        names = ", ".join(AnomalyThresholds.__struct_fields__)
        raise InvalidInput(f"invalid rules: {error}; known rules are {names}") from None
