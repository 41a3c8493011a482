"""Decides what needs an operator's attention, and describes it."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from penstock.model.message import Moment
from penstock.rules.plurals import format_count

# A queue without a worker is listed once its oldest message has waited for this long.
MIN_UNSERVED_S = 30.0
MAX_ITEMS = 50


class AttentionKind(StrEnum):
    DEAD_LETTERS = "dead_letters"
    NO_WORKER = "no_worker"
    PAUSED = "paused"
    AGENT_FAILED = "agent_failed"


class AttentionLevel(StrEnum):
    BAD = "bad"
    WARNING = "warning"


class QueueFacts(Struct, frozen=True, kw_only=True):
    """The figures of a queue. `waits` is the age of its oldest claimable message."""

    queue: str
    ready: int
    dead: int
    died: int
    common_error: str | None
    waits: float | None
    # When that message became ready, and when a message last died.
    since: Moment | None = None
    died_at: Moment | None = None
    # False while the queue or its scope is paused.
    serves: bool
    has_worker: bool


class Attention(Struct, frozen=True):
    kind: AttentionKind
    severity: AttentionLevel
    # The queue or the agent.
    subject: str
    text: str
    # An error or another text of the system's users, shown apart.
    detail: str = ""
    at: Moment | None = None


def find_attention(
    queues: Iterable[QueueFacts], failing_agents: Iterable[tuple[str, str]]
) -> list[Attention]:
    """Returns the worst first."""
    found = [
        Attention(AttentionKind.AGENT_FAILED, AttentionLevel.BAD, name, "has failed since", error)
        for name, error in failing_agents
    ]
    for facts in queues:
        found += describe_queue(facts)
    ranks = [AttentionLevel.BAD, AttentionLevel.WARNING]
    return sorted(found, key=lambda each: ranks.index(each.severity))[:MAX_ITEMS]


def describe_queue(facts: QueueFacts) -> Iterator[Attention]:
    if facts.died:
        yield Attention(
            AttentionKind.DEAD_LETTERS,
            AttentionLevel.BAD,
            facts.queue,
            f"{format_count(facts.died, 'message')} died in the last 5 minutes"
            + (", usually:" if facts.common_error else ""),
            facts.common_error or "",
            facts.died_at,
        )
    elif facts.dead:
        yield Attention(
            AttentionKind.DEAD_LETTERS,
            AttentionLevel.WARNING,
            facts.queue,
            f"{format_count(facts.dead, 'dead letter')} to redrive or purge",
        )
    if not facts.ready:
        return
    verb = "waits" if facts.ready == 1 else "wait"
    if not facts.serves:
        yield Attention(
            AttentionKind.PAUSED,
            AttentionLevel.WARNING,
            facts.queue,
            f"is paused, and {format_count(facts.ready, 'message')} {verb}",
            at=facts.since,
        )
    elif not facts.has_worker and (facts.waits or 0.0) >= MIN_UNSERVED_S:
        yield Attention(
            AttentionKind.NO_WORKER,
            AttentionLevel.WARNING,
            facts.queue,
            f"{format_count(facts.ready, 'message')} {verb} and no worker serves this queue",
            at=facts.since,
        )
