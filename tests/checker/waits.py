"""Rules: a run that waits is resumed when what it waits for has happened.

That each wait is followed by a resume or an end is a rule of all messages: one that still waits
after the drain is stuck.
"""

from collections.abc import Iterator

from .events import Settle
from .history import Operation
from .lives import Delivery, Evidence, Life
from .report import Kind, Violation


def resumed_early(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values():
        for wait, resumed in _resumes(life):
            if not _is_over(evidence, life, wait, resumed):
                text = f"message {life.id}: {resumed.text} came before what wait {wait.name}"
                text += f" (fence {wait.call.fence}) waits for"
                yield Violation(Kind.RESUMED_EARLY, text, (life.id,))


def _resumes(life: Life) -> Iterator[tuple[Operation[Settle], Delivery]]:
    """Each accepted wait, and the delivery after it, unless the message was redriven between."""
    for wait in life.settles:
        if wait.call.verb != "wait" or not wait.accepted:
            continue
        later = [each for each in life.deliveries if each.fence > wait.call.fence]
        if later and life.turn(later[0].fence) == life.turn(wait.call.fence):
            yield wait, later[0]


def _is_over(evidence: Evidence, life: Life, wait: Operation[Settle], resumed: Delivery) -> bool:
    at = resumed.handed.claimed_at + int(evidence.plan.due_slack * 1_000_000)
    if wait.answer.due_at is not None and wait.answer.due_at <= at:
        return True
    if wait.call.signal:
        return any(
            signal.call.name == wait.call.signal
            and signal.possible
            and signal.start < resumed.claim.end
            for signal in life.signals
        )
    awaited = [evidence.life(id) for id in wait.answer.awaits]
    return bool(awaited) and all(_has_ended(evidence, each, at) for each in awaited)


def _has_ended(evidence: Evidence, life: Life, at: int) -> bool:
    return not evidence.dumped or any(row.final and row.at <= at for row in life.rows)
