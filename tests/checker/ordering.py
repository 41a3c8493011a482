"""Rules: one message at a time per ordering key, lower ids first."""

from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct

from .events import Row
from .history import FOREVER
from .lives import Delivery, Evidence, Life
from .report import Kind, Violation


class Turn(Struct, frozen=True):
    """From its first claim to its end a message holds its key; a redrive begins another turn.

    It surely held the key from `start` to `end`; if that is no time, nothing is sure.
    """

    life: Life
    claimed: str
    start: int
    end: int


def order(evidence: Evidence) -> Iterator[Violation]:
    for lives in _keyed(evidence).values():
        yield from _overlapping([turn for life in lives for turn in _turns(life)])
        yield from _overtaking(lives)


def _keyed(evidence: Evidence) -> dict[tuple[str, str], list[Life]]:
    """A redriven copy is left out: whether it keeps its key is not promised."""
    keys: dict[tuple[str, str], list[Life]] = defaultdict(list)
    for life in evidence.lives.values():
        key = life.publishes[0].call.ordering_key if life.publishes else None
        if key is not None and not life.child:
            keys[life.queue, key].append(life)
    return keys


def _overlapping(turns: list[Turn]) -> Iterator[Violation]:
    holder: Turn | None = None
    sure = [turn for turn in turns if turn.start < turn.end]
    for turn in sorted(sure, key=lambda turn: turn.start):
        if holder and turn.start < holder.end and turn.life is not holder.life:
            text = f"message {turn.life.id}: {turn.claimed} came while message {holder.life.id}"
            text += f" of the same key was open since {holder.claimed}"
            yield Violation(Kind.ORDER, text, (holder.life.id, turn.life.id))
        if holder is None or turn.end > holder.end:
            holder = turn


def _overtaking(lives: list[Life]) -> Iterator[Violation]:
    """What was confirmed before another's publish began has its first turn before it."""
    plain = [life for life in lives if life.publishes[0].call.due_at is None]
    confirmed = sorted(plain, key=_confirmed_at, reverse=True)
    ahead: Turn | None = None
    for life in sorted(plain, key=_published_at):
        while confirmed and _confirmed_at(confirmed[-1]) < _published_at(life):
            turn = _turn(confirmed.pop(), 0)
            ahead = turn if ahead is None or turn.end > ahead.end else ahead
        mine = _turn(life, 0)
        if ahead and mine.start < ahead.end and ahead.life.id < life.id:
            text = f"message {life.id}: {mine.claimed} overtook message {ahead.life.id}"
            yield Violation(Kind.ORDER, f"{text} of the same key", (ahead.life.id, life.id))


def _confirmed_at(life: Life) -> int:
    return min(publish.end if publish.ok else FOREVER for publish in life.publishes)


def _published_at(life: Life) -> int:
    return min(publish.start for publish in life.publishes)


def _turns(life: Life) -> Iterator[Turn]:
    for number in range(life.turn(FOREVER) + 1):
        yield _turn(life, number)


def _turn(life: Life, number: int) -> Turn:
    deliveries = [d for d in life.deliveries if life.turn(d.fence) == number]
    first = min(deliveries, key=lambda delivery: delivery.claim.end, default=None)
    start = first.claim.end if first else FOREVER
    end = _open_until(life, number, deliveries)
    return Turn(life, first.text if first else "nobody", start, end)


def _open_until(life: Life, number: int, deliveries: list[Delivery]) -> int:
    """The earliest moment at which the turn can have ended."""
    fences = {delivery.fence for delivery in deliveries}
    held = [settle for settle in life.settles if settle.accepted and settle.call.fence in fences]
    shown = [delivery.claim.start for delivery in deliveries] + [settle.start for settle in held]
    claimed = max(shown, default=0)
    if not life.stored:
        return claimed
    rows = _rows(life, number)
    ending = next((row for row in rows if row.final or row.state == "dead"), None)
    if ending is None:
        return claimed if number < life.turn(FOREVER) else FOREVER
    ends = life.ends.get(ending.fence or 0, ())
    calls = [end.start for end in ends if end.call.verb == ending.verb]
    if ending.verb == "cancel":
        calls += [cancel.start for cancel in life.cancels if cancel.possible]
    return max(claimed, min(calls, default=0))


def _rows(life: Life, number: int) -> list[Row]:
    turns: list[list[Row]] = [[]]
    for row in life.rows:
        turns.append([]) if row.verb == "redrive" else turns[-1].append(row)
    return turns[number] if number < len(turns) else []
