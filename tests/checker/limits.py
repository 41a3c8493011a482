"""Rules: a message runs as often as its queue allows, no more and no less."""

from collections.abc import Iterator

from .events import Queue, Stored
from .lives import Evidence
from .report import Kind, Violation


def over_delivered(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values():
        settings = evidence.settings(life)
        for delivery in life.deliveries:
            handed = delivery.handed
            if _used_up(settings, handed.attempts, handed.deliveries - 1):
                text = f"message {life.id}: {delivery.text} is delivery {handed.deliveries}"
                text += f" after {handed.attempts} attempts, more than {settings.queue!r} allows"
                yield Violation(Kind.OVER_DELIVERED, text, (life.id,))


def dead_too_early(evidence: Evidence) -> Iterator[Violation]:
    """A nack or a reclaim kills only a message that has used up its runs."""
    for stored in evidence.history.stored:
        settings = evidence.history.queue(stored.queue)
        if _died_of_use(stored) and not _used_up(settings, stored.attempts, stored.deliveries):
            text = f"message {stored.id} is dead after {stored.attempts} attempts"
            text += f" and {stored.deliveries} deliveries"
            yield Violation(Kind.DEAD_TOO_EARLY, text, (stored.id,))


def _died_of_use(stored: Stored) -> bool:
    if stored.state != "dead" or not stored.rows:
        return False
    return stored.rows[-1].state == "dead" and stored.rows[-1].verb in ("nack", "reclaim")


def _used_up(settings: Queue, attempts: int, deliveries: int) -> bool:
    """Retry iff used < max_attempts and deliveries < max_deliveries."""
    used = attempts if settings.counts == "attempts" else deliveries
    return used >= settings.max_attempts or deliveries >= settings.max_deliveries
