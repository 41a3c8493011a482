"""Rules: each tick of a schedule fires once."""

from collections import defaultdict
from collections.abc import Iterator

from .lives import Evidence
from .report import Kind, Violation


def cron_double_fire(evidence: Evidence) -> Iterator[Violation]:
    for (schedule, tick), ids in _fired(evidence).items():
        if len(ids) > 1:
            text = f"schedule {schedule!r} fired tick {tick} as messages {sorted(ids)}"
            yield Violation(Kind.CRON_DOUBLE_FIRE, text, tuple(sorted(ids)))


def cron_missed(evidence: Evidence) -> Iterator[Violation]:
    fired = _fired(evidence)
    for schedule in evidence.history.schedules.values() if evidence.dumped else ():
        for tick in schedule.ticks:
            if (schedule.schedule, tick) not in fired:
                text = f"schedule {schedule.schedule!r} never fired tick {tick}"
                yield Violation(Kind.CRON_MISSED, text)


def _fired(evidence: Evidence) -> dict[tuple[str, int], set[int]]:
    """The messages of each tick."""
    fired: dict[tuple[str, int], set[int]] = defaultdict(set)
    for fire in evidence.history.fires:
        if fire.ok and fire.answer.id is not None:
            fired[fire.call.schedule, fire.call.tick].add(fire.answer.id)
    for stored in evidence.history.stored:
        if stored.schedule is not None and stored.tick is not None and stored.parent is None:
            fired[stored.schedule, stored.tick].add(stored.id)
    return fired
