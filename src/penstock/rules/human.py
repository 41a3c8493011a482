"""Rules: who may decide a human step, when it is decided, and what its timeout does."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import AlreadyDecided, Conflict, Forbidden
from penstock.model.human import TIMEOUT_DECIDER, Approval, Comment, Decision, HumanSpec, InboxState
from penstock.model.message import MICROS_PER_SECOND, NEVER, Moment, Record, State
from penstock.model.structs import copy_fields
from penstock.rules.human_spec import check_inputs, compute_digest
from penstock.rules.validation import check_text

CLAIM_S = 1_800
MAX_COMMENTS = 200
MAX_COMMENT_LENGTH = 4_000
MAX_DELEGATES = 20
Action = Literal["remind", "escalate", "decide", "expire", "abandon"]


class Person(Struct, frozen=True):
    """A caller as the inbox sees them. `acts_for_all` holds the right to decide for others."""

    subject: str
    roles: frozenset[str] = frozenset()
    sees_all: bool = False
    acts_for_all: bool = False


class OpenStep(Struct, frozen=True, kw_only=True):
    """An undecided step: its spec, when and by which caller it was requested, and its state."""

    id: int
    spec: HumanSpec
    created_at: Moment
    # The subject of the publish that began it; empty if unknown.
    requester: str = ""
    state: InboxState = InboxState()

    @property
    def started_at(self) -> Moment:
        return self.state.started_at or self.created_at

    @property
    def times_out_at(self) -> Moment:
        timeout = self.spec.timeout
        return NEVER if timeout is None else self.started_at + int(timeout * MICROS_PER_SECOND)


class InboxStep(Struct, frozen=True, kw_only=True):
    """A step as people see it. `decision` is set once it is decided."""

    step: OpenStep
    state: State
    correlation_id: str | None = None
    parent_id: int | None = None
    ended_at: Moment | None = None
    decision: Decision | None = None


class Due(Struct, frozen=True):
    """The action that is due for a step. `role` is the one that an escalation adds."""

    action: Action
    role: str = ""


class InboxStatistics(Struct, frozen=True, kw_only=True):
    """Counts of open steps, and of the last ended ones by choice."""

    open: int
    overdue: int
    choices: dict[str, int]
    expired: int
    # Median of the seconds until a decision.
    median_seconds: float | None


def is_assigned(step: OpenStep, person: Person) -> bool:
    assign = step.spec.assign
    roles = {*assign.roles, *step.state.escalated_to}
    if person.subject in assign.users or person.subject in step.state.delegates:
        return True
    return not roles.isdisjoint(person.roles)


def may_see(step: OpenStep, person: Person) -> bool:
    return person.sees_all or person.acts_for_all or is_assigned(step, person)


def check_decider(step: OpenStep, person: Person) -> None:
    """Raises Forbidden unless this person may decide the step."""
    if not (person.acts_for_all or is_assigned(step, person)):
        raise Forbidden(f"human step {step.id} is not assigned to {person.subject!r}")
    if step.spec.self_approval:
        return
    behind = step.state.delegates.get(person.subject, person.subject)
    if step.requester and step.requester in (person.subject, behind):
        raise Forbidden(f"{person.subject!r} requested human step {step.id} and may not decide it")


def decide(
    step: OpenStep,
    person: Person,
    choice: str,
    inputs: Mapping[str, Any],
    comment: str,
    now: Moment,
) -> InboxState | Decision:
    """Returns the decision, or the new state if more people must agree."""
    check_decider(step, person)
    option = check_inputs(step.spec, choice, inputs)
    check_text("comment", comment, MAX_COMMENT_LENGTH, least=0)
    approval = Approval(
        by=person.subject,
        choice=choice,
        at=now,
        inputs=dict(inputs),
        comment=comment,
        on_behalf_of=step.state.delegates.get(person.subject, ""),
    )
    check_first(step, approval)
    given = (*step.state.approvals, approval)
    agreeing = tuple(each for each in given if each.choice == choice)
    if option.kind != "reject" and len(agreeing) < step.spec.approvals:
        return replace(step.state, approvals=given)
    return conclude(step, approval, agreeing if step.spec.approvals > 1 else ())


def check_first(step: OpenStep, approval: Approval) -> None:
    """A person decides once, also through a delegate."""
    for each in step.state.approvals:
        if name_voter(each) == name_voter(approval):
            raise Conflict(f"{name_voter(each)!r} has already chosen {each.choice!r}")


def find_choice(step: OpenStep, person: str) -> Approval | None:
    """Returns what this person, or the one in whose place they decide, has chosen so far."""
    voter = step.state.delegates.get(person, person)
    return next((each for each in step.state.approvals if name_voter(each) == voter), None)


def name_voter(approval: Approval) -> str:
    return approval.on_behalf_of or approval.by


def conclude(step: OpenStep, last: Approval, approvals: tuple[Approval, ...]) -> Decision:
    return copy_fields(Decision, last, approvals=approvals, digest=compute_digest(step.spec))


def claim(step: OpenStep, person: Person, now: Moment) -> InboxState:
    """Reserves the step for one person, as a hint to the others."""
    check_decider(step, person)
    holder = step.state.claimed_by
    if holder not in ("", person.subject) and step.state.claimed_until > now:
        raise Conflict(f"human step {step.id} is claimed by {holder!r}")
    return replace(
        step.state, claimed_by=person.subject, claimed_until=now + CLAIM_S * MICROS_PER_SECOND
    )


def release(step: OpenStep, person: Person) -> InboxState:
    if step.state.claimed_by != person.subject and not person.acts_for_all:
        raise Conflict(f"human step {step.id} is not claimed by {person.subject!r}")
    return replace(step.state, claimed_by="", claimed_until=0)


def delegate(step: OpenStep, person: Person, to: str) -> InboxState:
    """Lets `to` decide in place of this person."""
    check_decider(step, person)
    check_text("to", to, 256)
    if to == person.subject:
        raise Conflict("a person cannot delegate a step to themselves")
    if len(step.state.delegates) >= MAX_DELEGATES and to not in step.state.delegates:
        raise Conflict(f"human step {step.id} has {MAX_DELEGATES} delegates already")
    behind = step.state.delegates.get(person.subject, person.subject)
    return replace(step.state, delegates={**step.state.delegates, to: behind})


def comment_on(step: OpenStep, person: Person, text: str, now: Moment) -> InboxState:
    check_text("text", text, MAX_COMMENT_LENGTH)
    if len(step.state.comments) >= MAX_COMMENTS:
        raise Conflict(f"human step {step.id} has {MAX_COMMENTS} comments already")
    return replace(step.state, comments=(*step.state.comments, Comment(person.subject, now, text)))


def find_due(step: OpenStep, now: Moment) -> Due | None:
    """Returns what the step needs now, a timeout before a reminder."""
    if now >= step.times_out_at:
        policy = step.spec.on_timeout
        level = len(step.state.escalated_to)
        if policy.decide is not None:
            return Due("decide")
        if level < len(policy.escalate):
            return Due("escalate", policy.escalate[level])
        return Due("expire")
    return Due("remind") if now >= next_reminder(step) else None


def next_reminder(step: OpenStep) -> Moment:
    moments = sorted(
        step.started_at + int(each * MICROS_PER_SECOND) for each in step.spec.reminders
    )
    return moments[step.state.reminded] if step.state.reminded < len(moments) else NEVER


def find_next_look(step: OpenStep) -> Moment:
    """Returns when the step is due next: its next reminder or its timeout."""
    return min(step.times_out_at, next_reminder(step))


def escalate(step: OpenStep, role: str, now: Moment) -> InboxState:
    """Adds a role. The timeout and the reminders start again."""
    return replace(
        step.state,
        escalated_to=(*step.state.escalated_to, role),
        started_at=now,
        reminded=0,
        claimed_by="",
        claimed_until=0,
    )


def remind(step: OpenStep, now: Moment) -> InboxState:
    """Counts all reminders that are due, so that a late pass sends one and not several."""
    passed = sum(
        step.started_at + int(each * MICROS_PER_SECOND) <= now for each in step.spec.reminders
    )
    return replace(step.state, reminded=passed)


def decide_by_timeout(step: OpenStep, now: Moment) -> Decision:
    choice = step.spec.on_timeout.decide
    assert choice is not None
    return Decision(
        choice=choice,
        by=TIMEOUT_DECIDER,
        at=now,
        timed_out=True,
        approvals=step.state.approvals,
        digest=compute_digest(step.spec),
    )


def summarise(
    open_steps: Sequence[OpenStep], ended: Sequence[Record], now: Moment
) -> InboxStatistics:
    decided = [record for record in ended if record.state is State.COMPLETED]
    seconds = [
        (record.timeline[-1].at - record.message.created_at) / MICROS_PER_SECOND
        for record in decided
        if record.timeline
    ]
    return InboxStatistics(
        open=len(open_steps),
        overdue=sum(step.times_out_at <= now for step in open_steps),
        choices=dict(Counter(record.reason or "" for record in decided)),
        expired=sum(record.state is State.EXPIRED for record in ended),
        median_seconds=median(seconds) if seconds else None,
    )


def describe_end(found: InboxStep) -> AlreadyDecided:
    """Returns the error of an act that came after the end of a step."""
    id, decision = found.step.id, found.decision
    if decision is None:
        return AlreadyDecided(f"human step {id} is {found.state}")
    at = datetime.fromtimestamp(decision.at // MICROS_PER_SECOND, UTC).isoformat(sep=" ")
    return AlreadyDecided(
        f"human step {id} was decided as {decision.choice!r} by {decision.by!r} at {at}"
    )
