"""Wire types of human steps, their patterns and the inbox."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, to_builtins

from penstock.model.human import Approval, Decision, DecisionOption, HumanPattern, InputField
from penstock.model.message import NEVER, Moment, State
from penstock.model.structs import copy_fields
from penstock.rules.human import InboxStatistics, InboxStep
from penstock.rules.human_patterns import list_parameters
from penstock.wire.fields import Name, Time, Word, to_datetime, to_optional_datetime

View = Annotated[
    Literal["mine", "roles", "all"],
    Meta(
        description="`mine`: assigned to this caller; `roles`: also by role;"
        " `all`: every step it may see."
    ),
]
Text = Annotated[str, Meta(max_length=4_000)]


class NewHumanStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step from a spec, or from a pattern and its parameters. `hitl_spec`, `hitl_pattern` and
    `params` are ScaiQueue's names for the same."""

    spec: dict[str, Any] | None = None
    pattern: Name | None = None
    parameters: dict[str, Any] = {}
    name: Word | None = None
    correlation_id: Word | None = None
    hitl_spec: dict[str, Any] | None = None
    hitl_pattern: Name | None = None
    params: dict[str, Any] = {}


class NewHumanStepResponse(Struct, frozen=True):
    id: str


class ApprovalView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    by: str
    choice: str
    at: Time
    on_behalf_of: str = ""
    comment: str = ""


class CommentView(Struct, frozen=True):
    by: str
    at: Time
    text: str


class DecisionView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision. `digest` identifies the text and the options that people saw."""

    choice: str
    by: str
    at: Time
    inputs: dict[str, Any] = {}
    comment: str = ""
    timed_out: bool = False
    approvals: list[ApprovalView] = []
    digest: str = ""


class HumanStepView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A human step. `content` is Markdown without HTML and images, and `content_html` is the same
    as HTML that is safe to show. `escalates_to` are the roles that later timeouts add. `refusal`
    says why the caller may not decide it.
    """

    id: str
    state: State
    title: str
    created_at: Time
    content: str = ""
    input: dict[str, InputField] = {}
    options: list[DecisionOption] = []
    users: list[str] = []
    roles: list[str] = []
    approvals_needed: int = 1
    approvals: list[ApprovalView] = []
    comments: list[CommentView] = []
    delegates: dict[str, str] = {}
    requester: str = ""
    claimed_by: str = ""
    claimed_until: Time | None = None
    times_out_at: Time | None = None
    on_timeout: dict[str, Any] = {}
    pattern: str = ""
    correlation_id: str | None = None
    parent_id: str | None = None
    decision: DecisionView | None = None
    content_html: str = ""
    escalates_to: list[str] = []
    refusal: str = ""


class HumanSteps(Struct, frozen=True, omit_defaults=True):
    steps: list[HumanStepView]
    cursor: str | None = None


class DecideRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    choice: Word
    inputs: dict[str, Any] = {}
    comment: Text = ""


class DelegateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Annotated[str, Meta(min_length=1, max_length=256, description="The subject.")]


class CommentRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=4_000)]


class LinkRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks for a link with which one person decides, without a login."""

    person: Annotated[str, Meta(min_length=1, max_length=256, description="The subject.")]
    expires_in: Annotated[float, Meta(ge=60, le=30 * 86_400)] = 86_400.0


class LinkView(Struct, frozen=True):
    url: str
    expires_at: Time


class StatisticsView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Open steps, and the last 500 ended ones by choice."""

    open: int
    overdue: int
    expired: int
    choices: dict[str, int] = {}
    median_seconds: float | None = None


class NewHumanPattern(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A spec with `{{parameters}}` in its title, content and defaults of inputs."""

    spec: dict[str, Any]
    description: str = ""


class HumanPatternView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    version: int
    spec: dict[str, Any]
    parameters: list[str] = []
    description: str = ""


class HumanPatternList(Struct, frozen=True):
    patterns: list[HumanPatternView]


def make_step_view(found: InboxStep) -> HumanStepView:
    step, spec, state = found.step, found.step.spec, found.step.state
    return HumanStepView(
        id=str(step.id),
        state=found.state,
        title=spec.title,
        created_at=to_datetime(step.created_at),
        content=spec.content,
        input=spec.input,
        options=list(spec.options),
        users=list(spec.assign.users),
        roles=[*spec.assign.roles, *state.escalated_to],
        approvals_needed=spec.approvals,
        approvals=[make_approval_view(each) for each in state.approvals],
        comments=[CommentView(each.by, to_datetime(each.at), each.text) for each in state.comments],
        delegates=state.delegates,
        requester=step.requester,
        claimed_by=state.claimed_by,
        claimed_until=to_optional_datetime(state.claimed_until or None),
        times_out_at=to_optional_datetime(none_if_never(step.times_out_at)),
        on_timeout=to_builtins(spec.on_timeout),
        escalates_to=list(spec.on_timeout.escalate[len(state.escalated_to) :]),
        pattern=spec.pattern,
        correlation_id=found.correlation_id,
        parent_id=None if found.parent_id is None else str(found.parent_id),
        decision=None if found.decision is None else make_decision_view(found.decision),
    )


def none_if_never(moment: Moment) -> Moment | None:
    return None if moment >= NEVER else moment


def make_approval_view(approval: Approval) -> ApprovalView:
    return copy_fields(ApprovalView, approval, at=to_datetime(approval.at))


def make_decision_view(decision: Decision) -> DecisionView:
    return copy_fields(
        DecisionView,
        decision,
        at=to_datetime(decision.at),
        approvals=[make_approval_view(each) for each in decision.approvals],
    )


def make_pattern_view(pattern: HumanPattern) -> HumanPatternView:
    return copy_fields(HumanPatternView, pattern, parameters=list_parameters(pattern))


def make_statistics_view(counted: InboxStatistics) -> StatisticsView:
    return copy_fields(StatisticsView, counted)
