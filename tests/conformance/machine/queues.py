"""The queues of the machine: between them they meet every policy, with exact delays."""

from typing import Any

from penstock.model.queue import DEAD_LETTER

QUEUES: dict[str, dict[str, Any]] = {
    "fifo": {
        "ordering": "fifo",
        "max_depth": 8,
        "max_attempts": 3,
        "lease": 10.0,
        "backoff": {"kind": "constant", "initial": 2.0, "jitter": "none"},
    },
    "priority": {
        "ordering": "priority",
        "max_depth": 12,
        "overflow": "dead",
        "max_attempts": 3,
        "max_deliveries": 4,
        "retry": {"count": "deliveries", "on_expiry": "count"},
        "backoff": {
            "kind": "exponential",
            "initial": 1.0,
            "factor": 3.0,
            "max": 8.0,
            "jitter": "none",
        },
        "clamp": True,
    },
    "due": {
        "ordering": "ready_time",
        "max_attempts": 4,
        "max_deliveries": 3,
        "retry": {"count": "attempts", "on_expiry": "backoff"},
        "lease": 5.0,
        "backoff": {
            "kind": "linear",
            "initial": 1.0,
            "step": 2.0,
            "jitter": "none",
            "max_total": 60.0,
        },
    },
    "aged": {
        "ordering": "priority",
        "seconds_per_level": 2.0,
        "max_attempts": 2,
        "backoff": {"kind": "none", "jitter": "none"},
    },
    "keyed": {
        "ordering": "deadline",
        "max_attempts": 2,
        "pause_accepts": False,
        "lease": 10.0,
        "backoff": {"kind": "none", "jitter": "none"},
    },
}
NAMES = tuple(QUEUES)
CLAIMABLE = (*NAMES, DEAD_LETTER)

# What an operator changes while messages are under way.
CHANGES: tuple[dict[str, Any], ...] = (
    {"max_attempts": 1, "max_deliveries": 3},
    {"max_attempts": 4, "max_deliveries": 5},
    {"max_deliveries": 2},
    {"max_deliveries": None},
    {"max_depth": 2},
    {"max_depth": None},
    {"max_depth": 2, "overflow": "dead"},
    {"overflow": "reject"},
    {"retry": {"count": "attempts", "on_expiry": "keep"}},
    {"retry": {"count": "deliveries", "on_expiry": "backoff"}},
    {"backoff": {"kind": "constant", "initial": 3.0}},
    {"backoff": {"max_total": 5.0}},
    {"pause_accepts": False},
    {"pause_accepts": True},
    {"lease": 2.0},
    {"merge": "rank"},
)
