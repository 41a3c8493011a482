"""Decisions of people as children of a run: `context.approve`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import JobCancelled
from penstock.model.human import Decision, HumanRequest
from penstock.model.message import Draft, State
from penstock.model.queue import HUMAN
from penstock.rules.durations import parse_seconds
from penstock.worker.codec import Values
from penstock.worker.step_calls import Outcome

EXPIRED = "expired"


class ApprovalCall:
    """A request for a decision, as a child that a run publishes and waits for."""

    results = Values(Decision, "decision")

    def __init__(self, request: HumanRequest) -> None:
        self.draft = Draft(queue=HUMAN, body=msgspec.json.encode(request))

    @property
    def task(self) -> "ApprovalCall":
        return self


def make_approval(
    question: str | Mapping[str, Any],
    timeout: str | float | None,
    requester: str,
    parameters: Mapping[str, Any],
) -> ApprovalCall:
    """Makes the request of a pattern by its name, or of a whole spec."""
    seconds = None if timeout is None else parse_seconds(timeout)
    if isinstance(question, str):
        return ApprovalCall(
            HumanRequest(
                pattern=question, parameters=dict(parameters), timeout=seconds, requester=requester
            )
        )
    return ApprovalCall(HumanRequest(spec=dict(question), timeout=seconds, requester=requester))


def read_decision(outcome: Outcome) -> Decision:
    """Returns the decision. A step that expired has the choice `expired`."""
    if outcome.state is State.COMPLETED:
        decision: Decision = outcome.value
        return decision
    if outcome.state is State.EXPIRED:
        return Decision(choice=EXPIRED, timed_out=True)
    raise JobCancelled(f"human step {outcome.id} is {outcome.state}")
