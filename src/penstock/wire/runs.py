"""Wire types of durable steps: what a run stores, what it waits for, and what it reads."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct

from penstock.model.message import After, State
from penstock.model.structs import copy_fields
from penstock.model.waiting import (
    AwaitedOutcome,
    Hold,
    HoldKind,
    StepKind,
    StepLog,
    StepRecord,
    StoredSignal,
    WaitPlan,
)
from penstock.wire.fields import (
    Id,
    Json,
    Seconds,
    Time,
    Token,
    Word,
    decode_body,
    encode_body,
    to_datetime,
    to_moment,
    to_optional_datetime,
    to_optional_moment,
)
from penstock.wire.publish import PublishRequest, make_publish_request

MAX_HOLDS = 10
MAX_CHILDREN = 10_000
NO_REASON = "wait"
RunFacts = Literal["steps", "signals", "outcomes", "parents"]
Place = Annotated[int, Meta(ge=0, le=MAX_CHILDREN)]


class RunStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step record of a run. `key` is the occurrence of the name in the run, or `k:` and a key of
    the handler. `position` orders the records. One that is not done has only begun."""

    name: Word
    key: Annotated[str, Meta(min_length=1, max_length=202)] = "1"
    kind: StepKind = "step"
    position: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    result: Json = UNSET
    result_base64: str | None = None
    done: bool = True
    due_at: Time | None = None
    at: Time | None = None


class SaveStepRequest(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Stores a step, unless it is stored. With `message`, publishes it and stores its id as the
    result. With `consumes`, marks that signal as received."""

    token: Token
    step: RunStep
    message: PublishRequest | None = None
    consumes: Id | None = None


class RunAfter(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Waits for children: those of this request by index, or earlier ones by id."""

    children: Annotated[list[Place], Meta(max_length=MAX_CHILDREN)] = []
    ids: Annotated[list[Id], Meta(max_length=MAX_CHILDREN)] = []
    policy: Literal["all", "any", "settled"] = "all"
    need: Annotated[int, Meta(ge=1, le=MAX_CHILDREN)] = 1


class RunHold(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A reason to wait: `moment` ends when it is due, `signal` by a signal of that name, `after`
    when children have ended. The last two also end when they are due."""

    kind: HoldKind
    name: Annotated[str, Meta(max_length=100)] = ""
    delay: Seconds | None = None
    due_at: Time | None = None
    after: RunAfter | None = None


class WaitRequestBody(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Ends the delivery until all holds have ended. Steps and children are stored with it; the ids
    of the children become the result of `children_step`."""

    token: Token
    reason: Word = NO_REASON
    holds: Annotated[list[RunHold], Meta(min_length=1, max_length=MAX_HOLDS)]
    steps: Annotated[list[RunStep], Meta(max_length=MAX_HOLDS)] = []
    children: Annotated[list[PublishRequest], Meta(max_length=MAX_CHILDREN)] = []
    children_step: RunStep | None = None


class ReadRunRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Reads what runs of a claimed message have stored."""

    token: Token
    include: Annotated[list[RunFacts], Meta(min_length=1, max_length=4)]


class RunSignal(Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    at: Time
    body: Json = UNSET
    body_base64: str | None = None
    consumed: bool = False


class RunOutcome(Struct, frozen=True, omit_defaults=True):
    """The end of an awaited message. `state` is absent until it ends."""

    id: str
    state: State | None = None
    result: Json = UNSET
    result_base64: str | None = None


class RunView(Struct, frozen=True, omit_defaults=True):
    """`now` is the time of the store. `parents` are the messages that it waited for before its
    first delivery, `outcomes` all that it has waited for."""

    now: Time
    steps: list[RunStep] = []
    signals: list[RunSignal] = []
    outcomes: list[RunOutcome] = []
    parents: list[RunOutcome] = []


class CallbackRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Makes the token of a callback URL that sends the signal `name` once."""

    token: Token
    name: Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")]
    expires_at: Time


class CallbackTokenView(Struct, frozen=True):
    """POST to `/v1/signals/{token}` of the server sends the signal."""

    token: str


def make_run_step(step: StepRecord) -> RunStep:
    result, base64 = encode_body(step.body)
    return copy_fields(
        RunStep,
        step,
        result=result,
        result_base64=base64,
        due_at=to_optional_datetime(step.due_at),
        at=to_datetime(step.at) if step.at else None,
    )


def read_run_step(step: RunStep) -> StepRecord:
    return copy_fields(
        StepRecord,
        step,
        body=decode_body(step.result, step.result_base64),
        due_at=to_optional_moment(step.due_at),
        at=to_moment(step.at) if step.at else 0,
    )


def make_run_hold(hold: Hold) -> RunHold:
    after = hold.after
    return RunHold(
        kind=hold.kind,
        name=hold.name,
        delay=hold.delay,
        due_at=to_optional_datetime(hold.due_at),
        after=None
        if after is None
        else RunAfter(
            list(after.entries),
            [str(id) for id in after.ids],
            "all" if after.policy == "decision" else after.policy,
            after.need,
        ),
    )


def read_run_hold(hold: RunHold) -> Hold:
    after = hold.after
    return Hold(
        kind=hold.kind,
        name=hold.name,
        delay=hold.delay,
        due_at=to_optional_moment(hold.due_at),
        after=None
        if after is None
        else After(
            entries=tuple(after.children),
            ids=tuple(int(id) for id in after.ids),
            policy=after.policy,
            need=after.need,
        ),
    )


def read_wait_reason(sent: WaitRequestBody) -> str:
    """Names the wait after its only hold, unless the caller gave a reason."""
    if sent.reason != NO_REASON or len(sent.holds) > 1:
        return sent.reason
    (hold,) = sent.holds
    match hold.kind:
        case "moment":
            return "sleep"
        case "signal":
            return f"signal:{hold.name}"
        case "after":
            after = hold.after or RunAfter()
            return f"after:{len(after.children) + len(after.ids)}"


def make_wait_request(token: str, plan: WaitPlan) -> WaitRequestBody:
    step = plan.children_step
    return WaitRequestBody(
        token=token,
        reason=plan.reason,
        holds=[make_run_hold(hold) for hold in plan.holds],
        steps=[make_run_step(each) for each in plan.steps],
        children=[make_publish_request(draft) for draft in plan.children],
        children_step=None if step is None else make_run_step(step),
    )


def make_run_signal(signal: StoredSignal) -> RunSignal:
    body, base64 = encode_body(signal.body)
    at = to_datetime(signal.at)
    return RunSignal(str(signal.id), signal.name, at, body, base64, signal.consumed)


def read_run_signal(signal: RunSignal, message_id: int) -> StoredSignal:
    return StoredSignal(
        id=int(signal.id),
        message_id=message_id,
        name=signal.name,
        body=decode_body(signal.body, signal.body_base64),
        at=to_moment(signal.at),
        consumed=signal.consumed,
    )


def make_run_outcome(outcome: AwaitedOutcome) -> RunOutcome:
    # An empty result differs from none.
    if outcome.result == b"":
        return RunOutcome(str(outcome.id), outcome.state, result_base64="")
    result, base64 = encode_body(outcome.result or b"")
    return RunOutcome(str(outcome.id), outcome.state, result, base64)


def read_run_outcome(outcome: RunOutcome) -> AwaitedOutcome:
    absent = outcome.result is UNSET and outcome.result_base64 is None
    result = None if absent else decode_body(outcome.result, outcome.result_base64)
    return AwaitedOutcome(int(outcome.id), outcome.state, result)


def read_step_log(view: RunView) -> StepLog:
    return StepLog([read_run_step(step) for step in view.steps], to_moment(view.now))
