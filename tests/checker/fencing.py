"""Rules: only the current fence writes, and a message is acked once."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import permutations

from .events import Settle
from .history import Operation
from .lives import ENDING, Delivery, Evidence, Life
from .report import Kind, Violation

FINAL = frozenset({"complete", "fail"})


def fence_reused(evidence: Evidence) -> Iterator[Violation]:
    """A fence belongs to one claim call of a queue."""
    owners: dict[tuple[str, int], str] = {}
    for claim in evidence.history.claims:
        handed = Counter((message.id, message.fence) for message in claim.answer.claims)
        for (id, fence), times in handed.items():
            owner = owners.setdefault((claim.call.queue, fence), claim.name)
            if owner != claim.name or times > 1:
                text = f"message {id}: fence {fence} came from claims {owner} and {claim.name}"
                yield Violation(Kind.FENCE_REUSED, text, (id,))


def fence_not_growing(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values():
        for earlier, later in permutations(life.deliveries, 2):
            if earlier.claim.end < later.claim.start and earlier.fence > later.fence:
                text = f"message {life.id}: {later.text} came after {earlier.text}"
                yield Violation(Kind.FENCE_NOT_GROWING, text, (life.id,))


def unknown_fence_accepted(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values():
        known = {delivery.fence for delivery in life.deliveries}
        for settle in life.settles:
            if settle.accepted and settle.call.fence not in known:
                text = f"message {life.id}: {_text(settle)} was accepted, no claim gave that fence"
                yield Violation(Kind.UNKNOWN_FENCE_ACCEPTED, text, (life.id,))


def double_ack(evidence: Evidence) -> Iterator[Violation]:
    """At most one call ends a message for good; a repeat says ALREADY_SETTLED."""
    for life in evidence.lives.values():
        acks = [settle for settle in life.settles if settle.call.verb in FINAL and settle.told]
        accepted = [settle for settle in acks if settle.accepted]
        fences = {settle.call.fence for settle in acks}
        fences |= {row.fence for row in life.rows if row.final and row.fence and row.verb in FINAL}
        if acks and (len(accepted) > 1 or len(fences) > 1):
            text = f"message {life.id} was acked by {', '.join(map(_text, acks))}"
            yield Violation(Kind.DOUBLE_ACK, f"{text}; fences {sorted(fences)}", (life.id,))


def redelivered_after_ack(evidence: Evidence) -> Iterator[Violation]:
    """After an accepted end only a redrive brings a dead message back."""
    for life in evidence.lives.values():
        for delivery in life.deliveries:
            end = _earlier_end(delivery, life)
            if end:
                text = f"message {life.id}: {delivery.text} came after {end}"
                yield Violation(Kind.REDELIVERED_AFTER_ACK, text, (life.id,))


def _earlier_end(delivery: Delivery, life: Life) -> str:
    for ack in life.settles:
        if ack.ok and ack.end < delivery.claim.start and _ends_for_good(ack, life):
            return f"{_text(ack)} was accepted"
    for row in life.rows:
        if row.final and row.fence and row.fence < delivery.fence:
            return f"the end of fence {row.fence} as {row.state}"
    return ""


def _ends_for_good(settle: Operation[Settle], life: Life) -> bool:
    return settle.call.verb in FINAL or (settle.call.verb == "reject" and not life.redriven)


def stale_fence_accepted(evidence: Evidence) -> Iterator[Violation]:
    """No accepted write comes from a fence that was already replaced or given up."""
    for life in evidence.lives.values():
        for settle in life.settles:
            reason = _stale(settle, life) if settle.accepted else ""
            if reason:
                text = f"message {life.id}: {_text(settle)} was accepted, but {reason}"
                yield Violation(Kind.STALE_FENCE_ACCEPTED, text, (life.id,))


def _stale(settle: Operation[Settle], life: Life) -> str:
    return (
        _replaced(settle, life.deliveries)
        or _given_up(settle, life.settles)
        or _voided(settle, life)
    )


def _replaced(settle: Operation[Settle], deliveries: list[Delivery]) -> str:
    """A final ack contradicts any newer fence that was not claimed after it."""
    for newer in deliveries:
        if newer.fence <= settle.call.fence:
            continue
        if newer.claim.end < settle.start:
            return f"{newer.text} had replaced it"
        if settle.call.verb in FINAL and newer.claim.start <= settle.end:
            return f"{newer.text} ran beside it"
    return ""


def _given_up(settle: Operation[Settle], settles: list[Operation[Settle]]) -> str:
    for other in settles:
        same = other.call.fence == settle.call.fence and other.call.verb in ENDING
        if same and other is not settle and other.accepted and other.end < settle.start:
            return f"{_text(other)} had ended that delivery"
    return ""


def _voided(settle: Operation[Settle], life: Life) -> str:
    for cancel in life.cancels:
        if cancel.call.force and cancel.ok and cancel.end < settle.start:
            return f"forced cancel {cancel.name} had voided it"
    return ""


def refused_but_applied(evidence: Evidence) -> Iterator[Violation]:
    """A refused call leaves no trace."""
    for life in evidence.lives.values():
        refused: dict[tuple[str, int], Operation[Settle]] = {}
        possible: set[tuple[str, int]] = set()
        for settle in life.settles:
            key = settle.call.verb, settle.call.fence
            if settle.possible:
                possible.add(key)
            else:
                refused[key] = settle
        for row in life.rows:
            wrong = refused.get((row.verb, row.fence or 0))
            # A forced cancel leaves the row that a worker's own cancel would leave.
            if wrong and row.verb != "cancel" and (row.verb, row.fence) not in possible:
                text = f"message {life.id}: {_text(wrong)} was refused and yet has a history row"
                yield Violation(Kind.REFUSED_BUT_APPLIED, text, (life.id,))


def ended_twice(evidence: Evidence) -> Iterator[Violation]:
    """One delivery ends once: one history row, one accepted call."""
    for life in evidence.lives.values():
        calls: dict[int, list[str]] = defaultdict(list)
        for settle in life.settles:
            if settle.accepted and settle.call.verb in ENDING:
                calls[settle.call.fence].append(_text(settle))
        rows = {fence: [row.verb for row in rows] for fence, rows in life.rows_by_fence.items()}
        for fence, ends in [*calls.items(), *rows.items()]:
            if len(ends) > 1:
                text = f"message {life.id}: fence {fence} ended by {', '.join(ends)}"
                yield Violation(Kind.ENDED_TWICE, text, (life.id,))


def _text(settle: Operation[Settle]) -> str:
    return f"{settle.call.verb} {settle.name} (fence {settle.call.fence})"
