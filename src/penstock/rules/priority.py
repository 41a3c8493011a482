"""Priorities: the rank of a message in its queue."""

from typing import assert_never

from penstock.model.message import (
    NEVER,
    Draft,
)
from penstock.model.settings import QueueSettings
from penstock.model.store_types import Basis


def clamp_priority(priority: int, settings: QueueSettings) -> int:
    """Brings a priority into range. Only queues with the setting `clamp` accept others."""
    if settings.priority_min <= priority <= settings.priority_max:
        return priority
    return max(settings.priority_min, min(settings.priority_max, priority))


def compute_rank(draft: Draft, settings: QueueSettings) -> tuple[int, Basis]:
    """Returns the rank in the queue, smaller first, and the moment it is relative to."""
    match settings.ordering:
        case "fifo":
            return 0, "zero"
        case "deadline":
            return (NEVER if draft.deadline is None else draft.deadline // 1000), "zero"
        case "ready_time":
            return 0, "due"
        case "priority" | "fair":
            priority = clamp_priority(draft.priority, settings)
            if settings.seconds_per_level is None:
                return -priority, "zero"
            return -int(priority * settings.seconds_per_level * 1000), "created"
    assert_never(settings.ordering)
