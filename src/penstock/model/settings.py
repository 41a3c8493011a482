"""The settings of a queue, and the presets."""

import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from penstock.errors import InvalidInput, NotYet
from penstock.model.anomalies import QUIET_KINDS, AnomalySettings
from penstock.model.fields import MAX_LEASE_S, MAX_RUNS, MAX_WAITS, MIN_LEASE_S

Ordering = Literal["fifo", "priority", "deadline", "ready_time", "fair"]
JITTERS = ("none", "full", "equal")
LATER = {"ordering": ("fair",)}
# A message of this type runs a command. Only queues with the setting `shell` accept it.
SHELL_TYPE = "penstock.shell"


# A path in a JSON body or result, a header, a label, or the error with its traceback.
MASK_ENTRY = re.compile(
    r"(?:body|result)(?:\.[^\s.*?]+)*|(?:headers|labels)\.[^\s*?]+|error", re.ASCII
)
MAX_MASK_ENTRIES = 50
MAX_MASK_LENGTH = 200

MAX_PURPOSE_LENGTH = 500
# A moment plus a duration must fit a Moment.
MAX_DURATION_S = 100 * 366 * 86_400.0


def check_range(name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidInput(f"{name} is {value}; it must be from {least} to {most}")


def check_mask(mask: tuple[str, ...]) -> None:
    if len(mask) > MAX_MASK_ENTRIES:
        raise InvalidInput(f"mask has more than {MAX_MASK_ENTRIES} fields")
    for entry in mask:
        if len(entry) > MAX_MASK_LENGTH or not MASK_ENTRY.fullmatch(entry):
            raise InvalidInput(
                f"mask {entry[:100]!r} is not body, body.PATH, result, result.PATH, headers.NAME,"
                " labels.NAME or error"
            )


class Backoff(Struct, frozen=True, forbid_unknown_fields=True):
    """The delay before a retry. `add:x` and `sym:x` add jitter of a fraction x of the delay."""

    kind: Literal["none", "constant", "linear", "exponential"] = "exponential"
    initial: float = 2.0
    factor: float = 2.0
    step: float = 0.0
    max: float = 3600.0
    jitter: str = "equal"
    max_total: float | None = None

    def __post_init__(self) -> None:
        check_range("backoff.initial", self.initial, 0, MAX_DURATION_S)
        check_range("backoff.factor", self.factor, 1, 1000)
        check_range("backoff.step", self.step, 0, MAX_DURATION_S)
        check_range("backoff.max", self.max, 0, MAX_DURATION_S)
        check_range("backoff.max_total", self.max_total, 0, MAX_DURATION_S)
        self.spread()

    def spread(self) -> float:
        """Returns the fraction x of `add:x` or `sym:x`, and 0 for other jitters."""
        if self.jitter in JITTERS:
            return 0.0
        word, _, number = self.jitter.partition(":")
        try:
            fraction = float(number)
        except ValueError:
            fraction = -1.0
        if word not in ("add", "sym") or not 0 <= fraction <= 1:
            raise InvalidInput(
                f"backoff.jitter {self.jitter!r} is not none, full, equal, add:x or sym:x"
                " with x from 0 to 1"
            )
        return fraction


class RetrySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Says what counts against max_attempts, and what a nack or an expired lease costs.

    With on_nack "dead", a nack without a delay ends a message that has no limit of its own.
    """

    count: Literal["attempts", "deliveries"] = "attempts"
    on_expiry: Literal["keep", "count", "backoff"] = "keep"
    on_nack: Literal["backoff", "dead"] = "backoff"


class QueueSettings(Struct, frozen=True, forbid_unknown_fields=True):
    ordering: Ordering = "priority"
    kind: Literal["competing", "broadcast"] = "competing"
    # Refuses to publish to a broadcast queue without a subscription.
    require_subscriber: bool = False
    # The purpose of the queue, as text.
    purpose: str = ""
    max_attempts: int = 5
    max_deliveries: int | None = None
    retry: RetrySettings = RetrySettings()
    backoff: Backoff = Backoff()
    # Waits of a message since it was published or redriven.
    max_waits: int = 1_000
    lease: float = 30.0
    pause_accepts: bool = True
    max_depth: int | None = None
    overflow: Literal["reject", "dead"] = "reject"
    priority_min: int = -1_000_000
    priority_max: int = 1_000_000
    # Brings priorities and nack delays into range instead of refusing them.
    clamp: bool = False
    filter_by_type: bool = False
    merge: Literal["rotate", "rank"] = "rotate"
    aging: bool = False
    seconds_per_level: float | None = None
    retention: float = 7 * 86_400.0
    # None keeps dead letters until they are redriven or purged.
    dead_retention: float | None = None
    keep_results: float = 86_400.0
    # Whether a message with a repeated dedup key must also have the same body.
    dedup_by: Literal["body", "key"] = "body"
    # Refuses to complete a message over HTTP without a result or an artifact.
    require_result: bool = False
    max_body: int = 1_048_576
    # Seconds between claims from an empty queue. None leaves it to the worker's max_interval.
    poll_interval: float | None = None
    shell: bool = False
    anomalies: AnomalySettings = AnomalySettings()
    # Fields that only callers with the right `reveal` see, such as body.card or headers.token.
    mask: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._refuse_later()
        if len(self.purpose) > MAX_PURPOSE_LENGTH:
            raise InvalidInput(f"purpose is longer than {MAX_PURPOSE_LENGTH} characters")
        check_range("max_attempts", self.max_attempts, 1, MAX_RUNS)
        check_range("max_deliveries", self.max_deliveries, 1, MAX_RUNS)
        check_range("max_waits", self.max_waits, 1, MAX_WAITS)
        check_range("max_depth", self.max_depth, 1, 2**53)
        check_range("max_body", self.max_body, 1, 64 * 1_048_576)
        check_range("lease", self.lease, MIN_LEASE_S, MAX_LEASE_S)
        check_range("poll_interval", self.poll_interval, 0.01, 60)
        check_range("retention", self.retention, 0, MAX_DURATION_S)
        check_range("dead_retention", self.dead_retention, 0, MAX_DURATION_S)
        check_range("keep_results", self.keep_results, 0, MAX_DURATION_S)
        self._check_priorities()
        check_mask(self.mask)

    def _refuse_later(self) -> None:
        for name, words in LATER.items():
            if (word := getattr(self, name)) in words:
                raise NotYet(f"{name} {word!r} is not supported yet")

    def _check_priorities(self) -> None:
        if self.priority_min > self.priority_max:
            raise InvalidInput("priority_min is above priority_max")
        check_range("priority_min", self.priority_min, -(2**31), 2**31 - 1)
        check_range("priority_max", self.priority_max, -(2**31), 2**31 - 1)
        if self.seconds_per_level is not None:
            # A rank in milliseconds must be exact in a double, because Redis keeps it as a score.
            farthest = max(1, -self.priority_min, self.priority_max)
            check_range("seconds_per_level", self.seconds_per_level, 0, 2**52 / 1000 / farthest)
            if self.ordering != "priority" or self.aging:
                raise InvalidInput("seconds_per_level needs ordering 'priority' and aging off")

    @property
    def deliveries_limit(self) -> int:
        return self.max_deliveries or self.max_attempts + 3


# Names of these settings in ScaiQueue.
SCAIQUEUE_WORDS = {
    "visibility_timeout_s": "lease",
    "max_retries": "max_attempts",
    "consumer_mode": "kind",
}

PRESETS: dict[str, QueueSettings] = {
    "default": QueueSettings(),
    "scaiqueue": QueueSettings(
        retry=RetrySettings(count="deliveries"),
        max_deliveries=8,
        backoff=Backoff(initial=2, factor=2, max=900, jitter="full"),
        pause_accepts=False,
        aging=True,
        retention=3_600.0,
        priority_min=0,
        priority_max=5000,
    ),
    "relay": QueueSettings(
        retry=RetrySettings(count="deliveries", on_expiry="count"),
        max_attempts=3,
        max_deliveries=3,
        backoff=Backoff(kind="none", jitter="none"),
        priority_min=0,
        priority_max=9,
        anomalies=AnomalySettings(on=QUIET_KINDS),
    ),
    "codeq": QueueSettings(
        retry=RetrySettings(count="deliveries", on_expiry="backoff"),
        max_deliveries=5,
        lease=300.0,
        backoff=Backoff(initial=10, factor=2, max=900, jitter="full"),
        priority_min=0,
        priority_max=9,
        clamp=True,
        filter_by_type=True,
        dedup_by="key",
        require_result=True,
    ),
    "faststream": QueueSettings(
        ordering="ready_time", retry=RetrySettings(on_nack="dead"), lease=600.0, merge="rank"
    ),
    "queuectl": QueueSettings(
        max_attempts=3,
        max_deliveries=6,
        lease=300.0,
        backoff=Backoff(initial=2, factor=2, jitter="none"),
        poll_interval=1.0,
        shell=True,
    ),
}


def get_preset(name: str) -> QueueSettings:
    try:
        return PRESETS[name]
    except KeyError:
        raise InvalidInput(
            f"no preset named {name!r}; expected one of {', '.join(sorted(PRESETS))}"
        ) from None


def change(settings: QueueSettings, changes: dict[str, Any]) -> QueueSettings:
    """Returns the settings with `changes` merged in. Nested settings are merged, not replaced."""
    changes = translate_words(changes)
    merged: dict[str, Any] = msgspec.to_builtins(settings)
    if isinstance(attempts := changes.get("max_attempts"), int) and settings.max_deliveries:
        # Keeps max_deliveries above max_attempts, or the added attempts would never happen.
        merged["max_deliveries"] = settings.max_deliveries - settings.max_attempts + attempts
    for name, value in changes.items():
        old = merged.get(name)
        laid_over = isinstance(old, dict) and isinstance(value, dict)
        merged[name] = {**merged[name], **value} if laid_over else value
    try:
        return msgspec.convert(merged, QueueSettings)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"queue settings: {error}") from None


def translate_words(changes: dict[str, Any]) -> dict[str, Any]:
    """Replaces settings in ScaiQueue's names."""
    if not changes.keys() & SCAIQUEUE_WORDS.keys():
        return changes
    translated: dict[str, Any] = {}
    for name, value in changes.items():
        ours = SCAIQUEUE_WORDS.get(name, name)
        if ours in translated or (ours != name and ours in changes):
            raise InvalidInput(f"{name} and {ours} are the same setting; give one of them")
        translated[ours] = value
    return translated
