"""Penstock: a durable work queue that starts as one file and grows to a fleet."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.agents import make_agents
    from penstock.app.app import Penstock
    from penstock.app.job import Job, await_many, wait_many
    from penstock.app.subscribers import Message, Router
    from penstock.app.workflow import FlowNode, chain, group
    from penstock.broker.local import Broker
    from penstock.errors import InvalidInput, JobCancelled, JobFailed, PenstockError
    from penstock.model.detectors import Detected, DetectorRow
    from penstock.model.human import HumanPattern
    from penstock.model.message import (
        Dedup,
        Draft,
        Fail,
        Leased,
        Nack,
        Park,
        Release,
        SettleCancelled,
        SettleReject,
        State,
    )
    from penstock.model.queue import Missed, QueueState, Schedule
    from penstock.rules.human import Person
    from penstock.runner import Runner, make_identity
    from penstock.worker.ack_policy import AckPolicy, Cancelled, Reject, Retry
    from penstock.worker.context import Context
    from penstock.worker.job_logging import JobLogFilter
    from penstock.worker.options import WorkerOptions
    from penstock.worker.retry_strategies import constant, exponential, linear, no_retry

__all__ = [
    "AckPolicy",
    "Broker",
    "Cancelled",
    "Context",
    "Dedup",
    "Detected",
    "DetectorRow",
    "Draft",
    "Fail",
    "FlowNode",
    "HumanPattern",
    "InvalidInput",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobLogFilter",
    "Leased",
    "Message",
    "Missed",
    "Nack",
    "Park",
    "Penstock",
    "PenstockError",
    "Person",
    "QueueState",
    "Reject",
    "Release",
    "Retry",
    "Router",
    "Runner",
    "Schedule",
    "SettleCancelled",
    "SettleReject",
    "State",
    "WorkerOptions",
    "await_many",
    "chain",
    "constant",
    "exponential",
    "group",
    "linear",
    "make_agents",
    "make_identity",
    "no_retry",
    "wait_many",
]

HOMES = {
    "agents": ("make_agents",),
    "app.app": ("Penstock",),
    "app.subscribers": ("Message", "Router"),
    "app.job": ("Job", "await_many", "wait_many"),
    "app.workflow": ("FlowNode", "chain", "group"),
    "broker.local": ("Broker",),
    "errors": ("InvalidInput", "JobCancelled", "JobFailed", "PenstockError"),
    "model.detectors": ("Detected", "DetectorRow"),
    "model.human": ("HumanPattern",),
    "model.message": (
        "Dedup",
        "Draft",
        "Fail",
        "Leased",
        "Nack",
        "Park",
        "Release",
        "SettleCancelled",
        "SettleReject",
        "State",
    ),
    "model.queue": ("Missed", "QueueState", "Schedule"),
    "rules.human": ("Person",),
    "runner": ("Runner", "make_identity"),
    "worker.options": ("WorkerOptions",),
    "worker.context": ("Context",),
    "worker.job_logging": ("JobLogFilter",),
    "worker.ack_policy": ("AckPolicy", "Cancelled", "Reject", "Retry"),
    "worker.retry_strategies": ("constant", "exponential", "linear", "no_retry"),
}

# Hidden from type checkers, which would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first used, so that commands start fast."""
        for home, names in HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"penstock.{home}"), name)
                return value
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
