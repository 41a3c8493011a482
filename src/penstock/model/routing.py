"""Routing rules: which messages they match, and what they do with them."""

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from penstock.model.message import Moment, State

# The kind of the documents that hold rules, and of those that hold their older versions.
RULE, RULE_VERSION = "rule", "rule_version"
# Where the agent of rules on ends is in the feed, and the ends that it fired on ahead of it.
RULE_CURSOR, RULE_CURSOR_NAME, FIRED = "rule_cursor", "ends", "rule_fired"

MAX_RULES = 1_000
MAX_ACTIONS = 16
MAX_CONDITION_LENGTH = 4_000
MAX_OUTPUTS = 16
# Rules that one message and its descendants may pass.
MAX_PATH = 16
MAX_VERSIONS = 100

# ScaiQueue's names for a thousand priorities each.
TIERS = {"background": 0, "low": 1, "normal": 2, "high": 3, "critical": 4}
PRIORITIES_PER_TIER = 1_000


class Trigger(StrEnum):
    PUBLISHED = "published"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


ENDS = frozenset(State(trigger) for trigger in Trigger if trigger is not Trigger.PUBLISHED)


class Escalation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Raises the priority by a number, to at least a number or a tier, or asks a person."""

    by: int | None = None
    priority: int | None = None
    tier: Literal["background", "low", "normal", "high", "critical"] | None = None
    # The pattern of the human step that is opened.
    pattern: str | None = None
    # Strings are JMESPath expressions over the message. Numbers are constants.
    parameters: dict[str, str | int | float] = {}


class Action(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One step of a rule. Exactly one field is set."""

    # A queue, or `scope:queue`.
    route: str | None = None
    copy: str | None = None
    set: dict[str, Any] | None = None
    unset: tuple[str, ...] | None = None
    # A JMESPath expression over the body. Its result is the new body.
    transform: str | None = None
    escalate: Escalation | None = None
    # Only true has a meaning.
    archive: bool | None = None
    delay: float | None = None
    # The reason of the dead letter.
    dead: str | None = None
    callback: str | None = None


class RuleFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The fields of a rule. `queue` and `type` are globs, and `when` is a CEL expression."""

    on: Trigger = Trigger.PUBLISHED
    queue: str = "*"
    type: str = "*"
    when: str = ""
    order: int = 100
    do: tuple[Action, ...]
    proceed: bool = field(default=False, name="continue")
    on_error: Literal["skip", "dead"] = "skip"
    on_limit: Literal["skip", "hold"] = "skip"
    # Firings a minute, in one process, after which the rule is suspended.
    limit: int = 10_000
    enabled: bool = True
    description: str = ""


class Rule(RuleFields, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule as an operator declares it."""

    name: str
    scope: str = "default"


class StoredRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule as it is stored: its version, its author, and since when it sees ends."""

    rule: Rule
    tenant: str
    version: int = 1
    author: str = ""
    saved_at: Moment = 0
    # When it was first enabled. Earlier ends are ignored.
    since: Moment = 0
    # The reason if the rule was suspended automatically.
    suspended: str = ""

    @property
    def active(self) -> bool:
        """True if it is evaluated. One that is suspended with `hold` holds back its matches."""
        running = not self.suspended or self.rule.on_limit == "hold"
        return self.rule.enabled and running

    @property
    def key(self) -> tuple[str, str, str]:
        return self.tenant, self.rule.scope, self.rule.name

    @property
    def reference(self) -> str:
        """The reference that messages store."""
        return f"{self.rule.name}@{self.version}"


class RuleFault(Struct, frozen=True):
    """A rule that could not be evaluated for a message, and why."""

    rule: str
    text: str


class RuleEffect(Struct, frozen=True, omit_defaults=True):
    """The effect that a rule would have had on one message."""

    id: str
    queue: str
    type: str
    # "match", "missing_field", "error", or "shadowed" if an earlier rule takes the message.
    verdict: str
    # The queues that the message would have gone to, with the state of one that ends at once.
    outputs: list[str] = []
    # The fields that would have changed.
    changed: list[str] = []
    # The earlier rule, or the error.
    note: str = ""


class RuleTest(Struct, frozen=True):
    """A dry run of a rule on recent messages of its queues."""

    tried: int
    matched: int
    shadowed: int
    missing_field: int
    errors: int
    # The first hundred messages that it concerns.
    effects: list[RuleEffect]


class RuleCoverage(Struct, frozen=True):
    """Counts of recent messages that a rule matched. One that never matched may be a mistake."""

    name: str
    on: Trigger
    order: int
    enabled: bool
    seen: int = 0
    matched: int = 0
    # Its condition was true, but an earlier rule took the message.
    shadowed: int = 0
    missing_field: int = 0
    errors: int = 0

    @property
    def never(self) -> bool:
        return self.matched == 0


Values: TypeAlias = dict[str, Any]
