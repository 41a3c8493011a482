"""Anomaly thresholds, as set by an operator."""

import tomllib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import InvalidInput


class AnomalyThresholds(Struct, frozen=True, forbid_unknown_fields=True):
    """Thresholds of all anomaly kinds. Durations are in seconds. `off` lists disabled kinds."""

    flash_under: float = 0.5
    slow_over: float = 10.0
    payload_over: int = 5_000
    # Multiples of the lease beyond its end.
    overdue_leases: float = 2.0
    burst_claims: int = 50
    burst_within: int = 5
    bulk_messages: int = 1_000
    bulk_within: int = 5
    lost_least: int = 1
    dead_least: int = 1
    last_chance_least: int = 1
    poison_attempts: int = 3
    poison_consumers: int = 2
    stuck_leases: int = 3
    storm_retries: int = 20
    storm_share: float = 0.5
    # Distance from the median of the same hour on earlier days, in multiples of the spread.
    season_spreads: float = 6.0
    season_days: int = 28
    season_least_days: int = 4
    # Minimum attempts per hour; fewer are not significant.
    season_least: int = 50
    off: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in msgspec.structs.asdict(self).items():
            if name != "off" and value < MINIMUMS.get(name, 0):
                raise InvalidInput(
                    f"rule {name} must be at least {MINIMUMS.get(name, 0)}, not {value}"
                )
        if unknown := set(self.off) - set(SEVERITIES):
            raise InvalidInput(
                f"unknown anomaly {', '.join(sorted(unknown))}; known are {', '.join(SEVERITIES)}"
            )
        if self.season_least_days > self.season_days:
            raise InvalidInput("rule season_least_days must not exceed season_days")

    @property
    def digest(self) -> str:
        return sha256(msgspec.json.encode(self)).hexdigest()[:16]


MINIMUMS = {
    "burst_claims": 2,
    "burst_within": 1,
    "bulk_messages": 2,
    "bulk_within": 1,
    "lost_least": 1,
    "dead_least": 1,
    "last_chance_least": 1,
    "poison_attempts": 2,
    "poison_consumers": 1,
    "stuck_leases": 1,
    "storm_retries": 1,
    "season_days": 2,
    "season_least_days": 2,
    "season_least": 1,
}
# Every kind of anomaly and its severity.
SEVERITIES = {
    "flash_message": "info",
    "large_payload": "info",
    "bulk_publish": "info",
    "claim_burst": "info",
    "slow_processing": "warning",
    "lost_lease": "warning",
    "last_attempt": "warning",
    "overdue": "warning",
    "dead_letter": "critical",
    "poison_message": "critical",
    "stuck_consumer": "critical",
    "retry_storm": "critical",
    "unusual_throughput": "warning",
    "unusual_failures": "critical",
    "unusual_wait": "warning",
    "unusual_run": "warning",
}


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
