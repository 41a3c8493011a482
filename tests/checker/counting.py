"""Rules: attempts and deliveries are counted right."""

from collections.abc import Iterator

from msgspec import Struct

from .events import Queue
from .history import FOREVER
from .lives import Delivery, Evidence, Life
from .report import Kind, Violation

CONCLUDING = frozenset({"complete", "nack", "reject", "fail"})
Used = tuple[int, int]
NO, MAYBE, YES = (0, 0), (0, 1), (1, 1)


class Bounds(Struct, frozen=True, gc=False):
    """What a counter may say; `most` is absent when unseen claims are."""

    least: int
    most: int | None

    def __contains__(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


def counters_wrong(evidence: Evidence) -> Iterator[Violation]:
    """Each delivery and the stored message say what happened before them."""
    for life in evidence.lives.values():
        if (evidence.dumped and life.stored) or (not evidence.dumped and not life.redriven):
            settings = evidence.settings(life)
            yield from _compare_deliveries(life, settings)
            yield from _compare_stored(life, settings)


def _compare_deliveries(life: Life, settings: Queue) -> Iterator[Violation]:
    before: Delivery | None = None
    for delivery in life.deliveries:
        if before and life.turn(before.fence) != life.turn(delivery.fence):
            before = None
        handed, when = delivery.handed, f"before {delivery.text}"
        # The claim itself is one more delivery than what came before it.
        used = handed.deliveries - 1, handed.attempts
        yield from _compare(life, when, used, _after(life, before, delivery.fence, settings))
        before = delivery


def _compare_stored(life: Life, settings: Queue) -> Iterator[Violation]:
    if life.stored is None or not life.deliveries:
        return
    last = life.deliveries[-1]
    if life.turn(last.fence) == life.turn(FOREVER):
        used = life.stored.deliveries, life.stored.attempts
        yield from _compare(life, "in the end", used, _after(life, last, FOREVER, settings))


def _compare(
    life: Life, when: str, used: tuple[int, int], allowed: tuple[Bounds, Bounds]
) -> Iterator[Violation]:
    kinds = (Kind.DELIVERIES_WRONG, "deliveries"), (Kind.ATTEMPTS_WRONG, "attempts")
    for (kind, noun), count, bounds in zip(kinds, used, allowed, strict=True):
        if count not in bounds:
            text = f"message {life.id}: {count} {noun} were counted {when}, rightly {bounds}"
            yield Violation(kind, text, (life.id,))


def _after(
    life: Life, before: Delivery | None, fence: int, settings: Queue
) -> tuple[Bounds, Bounds]:
    """Deliveries and attempts between one delivery (or the start of a turn) and the next fence."""
    unseen = _unseen(life, before, fence)
    # An unseen claim can only have been reclaimed.
    expired = 0 if settings.on_expiry == "keep" else unseen
    if before is None:
        return Bounds(0, unseen), Bounds(0, expired)
    back, spent = _returned(life, before), _spent(life, before, settings)
    deliveries, attempts = before.handed.deliveries, before.handed.attempts
    if _ending(life, before) == "wait":
        # From 0 if the run recorded something new, otherwise as after a nack.
        return Bounds(0, _plus(deliveries, unseen)), Bounds(0, _plus(attempts + 1, expired))
    return (
        Bounds(deliveries - back[1], _plus(deliveries - back[0], unseen)),
        Bounds(attempts + spent[0], _plus(attempts + spent[1], expired)),
    )


def _plus(count: int, unseen: int | None) -> int | None:
    return None if unseen is None else count + unseen


def _unseen(life: Life, before: Delivery | None, fence: int) -> int | None:
    """Claims whose answer nobody saw; each left a history row."""
    if life.stored is None:
        return None
    low = before.fence if before else -1
    turn = life.turn(fence)
    return sum(low < other < fence and life.turn(other) == turn for other in life.rows_by_fence)


def _returned(life: Life, delivery: Delivery) -> Used:
    """Whether the delivery was given back: a release does it, a suspect not begun too."""
    match _ending(life, delivery):
        case "release" | "park":
            return YES
        case "reclaim":
            return _unbegun(life, delivery)
        case verb:
            return NO if verb in CONCLUDING else MAYBE


def _spent(life: Life, delivery: Delivery, settings: Queue) -> Used:
    """Whether the delivery used an attempt."""
    match _ending(life, delivery):
        case "release" | "park":
            return NO
        case "reclaim":
            return NO if settings.on_expiry == "keep" else _not(_unbegun(life, delivery))
        case verb:
            return YES if verb in CONCLUDING else MAYBE


def _not(used: Used) -> Used:
    return 1 - used[1], 1 - used[0]


def _ending(life: Life, delivery: Delivery) -> str:
    """The verb that ended it; empty when that is open, or when a cancel changed its meaning."""
    for row in life.rows_by_fence.get(delivery.fence, ()):
        return "" if row.state == "cancelled" else row.verb
    ends = life.ends.get(delivery.fence, ())
    return next((end.call.verb for end in ends if end.ok and not life.cancels), "")


def _unbegun(life: Life, delivery: Delivery) -> Used:
    """Only who promised to begin can be seen not to have begun; a first run is no suspect."""
    if not delivery.claim.call.begins:
        return NO
    begins = [
        settle
        for settle in life.settles
        if settle.call.verb == "begin" and settle.call.fence == delivery.fence and settle.possible
    ]
    if any(settle.ok for settle in begins):
        return NO
    return MAYBE if begins or delivery.handed.deliveries < 2 else YES
