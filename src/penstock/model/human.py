"""Human steps: what a person is asked, what they may answer, and what they answered."""

from typing import Any, Literal

from msgspec import Struct

from penstock.model.message import Moment

OptionKind = Literal["approve", "reject", "neutral"]
FieldType = Literal["string", "number", "integer", "boolean"]
FieldFormat = Literal["text", "long", "date"]
# The subject of a decision that the timeout made.
TIMEOUT_DECIDER = "_timeout"


# The kind of the documents that hold patterns.
PATTERN = "human_pattern"


class InputField(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field of the form. It is a flat subset of JSON Schema."""

    type: FieldType = "string"
    title: str = ""
    description: str = ""
    # Every option needs it.
    required: bool = False
    format: FieldFormat = "text"
    enum: tuple[str | int | float, ...] = ()
    default: str | int | float | bool | None = None
    minimum: float | None = None
    maximum: float | None = None
    max_length: int | None = None


class DecisionOption(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer that a person may choose, and the inputs it requires."""

    id: str
    label: str = ""
    kind: OptionKind = "neutral"
    requires: tuple[str, ...] = ()


class Assignment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The people who may decide: by subject, or by a role they have when they decide."""

    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


class TimeoutPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The action if no decision is made in time. Exactly one field is set."""

    # The id of the option to choose.
    decide: str | None = None
    # The roles to add, one at each timeout. After the last one the step expires.
    escalate: tuple[str, ...] = ()
    expire: bool = False


class HumanSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to a person. It is the body of a message in the queue `_human`."""

    title: str
    # Markdown without raw HTML and images.
    content: str = ""
    input: dict[str, InputField] = {}
    options: tuple[DecisionOption, ...] = ()
    assign: Assignment = Assignment()
    # How many different people must choose the same option.
    approvals: int = 1
    self_approval: bool = False
    # Seconds until `on_timeout` applies.
    timeout: float | None = None
    on_timeout: TimeoutPolicy = TimeoutPolicy(expire=True)
    # Seconds after the start, or after an escalation, at which the assigned are reminded.
    reminders: tuple[float, ...] = ()
    # One-time links ask for a login. By default they do if several people must agree.
    require_login: bool | None = None
    # The name and version of the pattern that it was made from.
    pattern: str = ""


class HumanPattern(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A named spec with `{{parameters}}` in its title, content and defaults of inputs."""

    name: str
    spec: dict[str, Any]
    description: str = ""
    version: int = 1


class HumanRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for a decision: a pattern with parameters, or a spec."""

    pattern: str = ""
    parameters: dict[str, Any] = {}
    spec: dict[str, Any] | None = None
    timeout: float | None = None
    requester: str = ""


class Approval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One person's choice, made for themselves or as a delegate."""

    by: str
    choice: str
    at: Moment
    inputs: dict[str, Any] = {}
    comment: str = ""
    # The person who delegated the step.
    on_behalf_of: str = ""


class Comment(Struct, frozen=True):
    by: str
    at: Moment
    text: str


class InboxState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of an open step: claim, delegates, comments, approvals."""

    claimed_by: str = ""
    claimed_until: Moment = 0
    # Maps delegates to the person who delegated the step.
    delegates: dict[str, str] = {}
    # Roles that escalations added.
    escalated_to: tuple[str, ...] = ()
    # When the current timeout and its reminders started, if an escalation moved them.
    started_at: Moment = 0
    reminded: int = 0
    comments: tuple[Comment, ...] = ()
    approvals: tuple[Approval, ...] = ()


class Decision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a human step."""

    choice: str
    inputs: dict[str, Any] = {}
    by: str = ""
    at: Moment = 0
    comment: str = ""
    timed_out: bool = False
    # Everyone who agreed, if several people had to.
    approvals: tuple[Approval, ...] = ()
    # The digest of the spec that they saw.
    digest: str = ""
