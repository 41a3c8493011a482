"""Penstock: a durable work queue that starts as one file and grows to a fleet."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.app.app import Penstock
    from penstock.app.job import Job, await_many, wait_many
    from penstock.errors import PenstockError
    from penstock.model.message import Dedup, Draft
    from penstock.worker.context import Context
    from penstock.worker.job_logging import JobLogFilter
    from penstock.worker.message import Message
    from penstock.worker.policy import (
        AckPolicy,
        Cancelled,
        Reject,
        Retry,
        constant,
        exponential,
        linear,
        no_retry,
    )

__all__ = [
    "AckPolicy",
    "Cancelled",
    "Context",
    "Dedup",
    "Draft",
    "Job",
    "JobLogFilter",
    "Message",
    "Penstock",
    "PenstockError",
    "Reject",
    "Retry",
    "await_many",
    "constant",
    "exponential",
    "linear",
    "no_retry",
    "wait_many",
]

HOMES = {
    "app.app": ("Penstock",),
    "errors": ("PenstockError",),
    "app.job": ("Job", "await_many", "wait_many"),
    "model.message": ("Dedup", "Draft"),
    "worker.context": ("Context",),
    "worker.message": ("Message",),
    "worker.job_logging": ("JobLogFilter",),
    "worker.policy": (
        "AckPolicy",
        "Cancelled",
        "Reject",
        "Retry",
        "constant",
        "exponential",
        "linear",
        "no_retry",
    ),
}

# Hidden from type checkers, which would take any name for one of ours.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The public names are imported when they are first used: commands start fast."""
        for home, names in HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"penstock.{home}"), name)
                return value
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
