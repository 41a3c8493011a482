"""Detectors of an app: the rows they receive, and what they return."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct

from penstock.errors import InvalidInput
from penstock.model.anomalies import DETECTOR_NAME, SEVERITIES, Severity
from penstock.model.message import Moment, State, Verb


class DetectorRow(Struct, frozen=True, kw_only=True):
    """One row of history: a delivery that ended, or another change of a message.

    `wait` and `run` are in seconds, and None if the message was not claimed.
    """

    id: int
    scope: str
    queue: str
    type: str
    verb: Verb
    state: State
    reason: str | None
    error: str | None
    attempts: int
    deliveries: int
    consumer: str | None
    wait: float | None
    run: float | None
    body_bytes: int
    at: Moment


class Detected(Struct, frozen=True, kw_only=True):
    """An anomaly that a detector found. `note` describes it; alerts do not carry it."""

    queue: str
    scope: str = "default"
    count: int = 1
    value: float | None = None
    type: str = ""
    consumer: str = ""
    message_id: int | None = None
    note: str | None = None


DetectorFunction: TypeAlias = Callable[[Sequence[DetectorRow]], Iterable[Detected] | None]


class Detector(Struct, frozen=True):
    """A function that looks at new history rows. Its name is the kind of its anomalies."""

    name: str
    severity: Severity
    function: DetectorFunction

    def __post_init__(self) -> None:
        if not DETECTOR_NAME.fullmatch(self.name):
            raise InvalidInput(
                f"detector name {self.name[:60]!r} is invalid; use up to 40 of a-z, 0-9 and _"
            )
        if self.name in SEVERITIES:
            raise InvalidInput(f"{self.name!r} is a built-in anomaly; choose another name")
        if self.severity not in ("info", "warning", "critical"):
            raise InvalidInput(
                f"severity is {self.severity!r}; it must be info, warning or critical"
            )
