"""Rules: which notification about a human step is due, and its text."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from penstock.model.human_webhooks import StepNotice
from penstock.model.message import MICROS_PER_SECOND, NEVER, Moment
from penstock.retry_policies import compute_webhook_delay
from penstock.rules.events import HUMAN_DECIDED, HUMAN_ESCALATED, HUMAN_OPENED, HUMAN_REMINDED
from penstock.rules.human import InboxStep


def find_kind(known: StepNotice, found: InboxStep) -> str | None:
    """Returns the kind of the next notification. Outdated ones are not sent."""
    state = found.step.state
    if found.state.final:
        return HUMAN_DECIDED
    if not known.opened:
        return HUMAN_OPENED
    if len(state.escalated_to) > known.escalated:
        return HUMAN_ESCALATED
    return HUMAN_REMINDED if state.reminded > known.reminded else None


def note_accepted(known: StepNotice, found: InboxStep) -> StepNotice:
    """Returns the notice after a notification was accepted."""
    state = found.step.state
    return StepNotice(
        opened=True, escalated=len(state.escalated_to), reminded=state.reminded, sent=known.sent + 1
    )


def note_failed(known: StepNotice, now: Moment) -> StepNotice:
    """Schedules the next attempt."""
    due_at = now + int(compute_webhook_delay(known.attempts) * MICROS_PER_SECOND)
    return replace(known, attempts=known.attempts + 1, due_at=due_at)


def list_people(found: InboxStep) -> list[str]:
    """Lists the people who are named by the step or by a delegation."""
    return list(dict.fromkeys([*found.step.spec.assign.users, *found.step.state.delegates]))


def make_text(kind: str, found: InboxStep) -> str:
    """Returns the line that a chat shows."""
    title, decision = found.step.spec.title, found.decision
    if kind == HUMAN_OPENED:
        return f"A decision is needed: {title}"
    if kind == HUMAN_REMINDED:
        return f"Reminder: a decision is needed: {title}"
    if kind == HUMAN_ESCALATED:
        return f"Escalated to {found.step.state.escalated_to[-1]}: {title}"
    if decision is not None:
        return f"Decided as {decision.choice} by {decision.by}: {title}"
    return f"Ended as {found.state} without a decision: {title}"


def describe_step(found: InboxStep, scope: str, links: Mapping[str, str]) -> dict[str, Any]:
    """Names the step and its people, without its content and inputs."""
    step, decision = found.step, found.decision
    return {
        "id": str(step.id),
        "scope": scope,
        "title": step.spec.title,
        "state": found.state.value,
        "requester": step.requester or None,
        "users": list_people(found),
        "roles": list(dict.fromkeys([*step.spec.assign.roles, *step.state.escalated_to])),
        "times_out_at": None if step.times_out_at >= NEVER else step.times_out_at,
        "choice": None if decision is None else decision.choice,
        "by": None if decision is None else decision.by,
        "correlation_id": found.correlation_id,
        "links": dict(links),
    }
