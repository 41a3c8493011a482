"""Rules: the final dump agrees with what the calls were told."""

from collections import Counter
from collections.abc import Iterator

from .events import NEVER, Stored
from .lives import ENDING, Evidence, Life
from .report import Kind, Violation

FINAL_STATES = {"complete": "completed", "fail": "failed"}
WAITING = frozenset({"ready", "claimed", "scheduled"})


def stuck(evidence: Evidence) -> Iterator[Violation]:
    """After heal and drain all that is due has ended or is dead."""
    end = evidence.history.end
    recent = end.clock_at - int(evidence.plan.reclaim_within * 1_000_000) if end else 0
    for stored in evidence.history.stored:
        later = stored.state == "scheduled" and recent < (stored.due_at or 0) < NEVER
        if stored.state in WAITING and not later:
            text = f"message {stored.id} ({stored.label}) is still {stored.state} after the drain"
            yield Violation(Kind.STUCK, text, (stored.id,))


def acked_but_not_completed(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values():
        for settle in life.settles if life.stored else ():
            state = FINAL_STATES.get(settle.call.verb)
            if state and settle.told and life.stored and life.stored.state != state:
                text = f"message {life.id}: {settle.call.verb} {settle.name} was accepted"
                text += f", the store says {life.stored.state}"
                yield Violation(Kind.ACKED_BUT_NOT_COMPLETED, text, (life.id,))


def completed_without_ack(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values():
        for verb, state in FINAL_STATES.items():
            if life.stored and life.stored.state == state and not _asked(life, life.stored, verb):
                text = f"message {life.id} is {state}, no {verb} can have done it"
                yield Violation(Kind.COMPLETED_WITHOUT_ACK, text, (life.id,))


def _asked(life: Life, stored: Stored, verb: str) -> bool:
    """By the fence of its final row, when it has one."""
    fence = next((row.fence for row in stored.rows if row.final), None)
    return any(
        settle.call.verb == verb and settle.possible and fence in (None, settle.call.fence)
        for settle in life.settles
    )


def history_gap(evidence: Evidence) -> Iterator[Violation]:
    """Every accepted end, and every delivery that is over, has its history row."""
    for life in evidence.lives.values():
        for what in _unwritten(life, life.stored) if life.stored else ():
            text = f"message {life.id}: {what} has no history row"
            yield Violation(Kind.HISTORY_GAP, text, (life.id,))


def _unwritten(life: Life, stored: Stored) -> Iterator[str]:
    for settle in life.settles:
        ended = settle.told and settle.call.verb in ENDING
        if ended and not _row(life, settle.call.fence, settle.call.verb):
            yield f"accepted {settle.call.verb} {settle.name} (fence {settle.call.fence})"
    for fence in _over(life, stored):
        if not _row(life, fence):
            yield f"the end of fence {fence}"


def _over(life: Life, stored: Stored) -> list[int]:
    """Fences that are no longer held; a forced cancel may end one without naming it."""
    fences = [delivery.fence for delivery in life.deliveries]
    held = stored.state == "claimed" or any(cancel.call.force for cancel in life.cancels)
    return fences[:-1] if held else fences


def _row(life: Life, fence: int, verb: str = "") -> bool:
    return any(verb in ("", row.verb) for row in life.rows_by_fence.get(fence, ()))


def two_finals(evidence: Evidence) -> Iterator[Violation]:
    for stored in evidence.history.stored:
        finals = [row for row in stored.rows if row.final]
        if len(finals) > 1:
            names = ", ".join(f"{row.state} (fence {row.fence})" for row in finals)
            text = f"message {stored.id} ended {len(finals)} times: {names}"
            yield Violation(Kind.TWO_FINALS, text, (stored.id,))


def two_places(evidence: Evidence) -> Iterator[Violation]:
    """A ticket is in one place, and in none when its message is finished."""
    times = Counter(stored.id for stored in evidence.history.stored)
    for stored in evidence.history.stored:
        places = list(stored.places or ())
        places += ["finished"] if any(row.final for row in stored.rows) else []
        if len(places) > 1 or times[stored.id] > 1:
            text = f"message {stored.id} is in {', '.join(places)}, dumped {times[stored.id]} times"
            yield Violation(Kind.TWO_PLACES, text, (stored.id,))


def cancelled_but_delivered(evidence: Evidence) -> Iterator[Violation]:
    """After an accepted cancel a message is handed out no more, unless it died and was redriven."""
    for life in evidence.lives.values():
        for cancel in life.cancels if not life.redriven else ():
            later = [d for d in life.deliveries if cancel.ok and cancel.end < d.claim.start]
            told = cancel.ok and cancel.answer.state == "cancelled"
            undone = told and life.stored is not None and life.stored.state != "cancelled"
            if later or undone:
                what = later[0].text if later else "its end as another state"
                text = f"message {life.id}: {what} came after cancel {cancel.name}"
                yield Violation(Kind.CANCELLED_BUT_DELIVERED, text, (life.id,))
