"""Causes why a message does not run, and what is known to find them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from penstock.model.message import Moment, Record, State
from penstock.model.queue import Queue
from penstock.model.store_types import AgentRun, Diagnosis, WorkerInfo
from penstock.model.waiting import StoredHold

Evidence: TypeAlias = dict[str, str | int | float | None]


class CauseCode(StrEnum):
    SCHEDULED = "SCHEDULED"
    RETRY = "RETRY"
    PARKED = "PARKED"
    KEY_HELD = "KEY_HELD"
    WAITS = "WAITS"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    QUEUE_ARCHIVED = "QUEUE_ARCHIVED"
    SCOPE_ARCHIVED = "SCOPE_ARCHIVED"
    SCOPE_PAUSED = "SCOPE_PAUSED"
    NO_WORKER = "NO_WORKER"
    TYPE_NOT_SERVED = "TYPE_NOT_SERVED"
    SLOTS_BUSY = "SLOTS_BUSY"
    IN_LINE = "IN_LINE"
    NEXT = "NEXT"
    FETCHED = "FETCHED"
    RUNNING = "RUNNING"
    LEASE_EXPIRED = "LEASE_EXPIRED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    AGENTS_LATE = "AGENTS_LATE"
    DEAD = "DEAD"
    ENDED = "ENDED"


class Cause(Struct, frozen=True):
    """One reason, with what proves it and what would change it."""

    code: CauseCode
    text: str
    remedy: str
    evidence: Evidence = {}


class ExplainSnapshot(Struct, frozen=True):
    """All that is known of a message and its surroundings at one moment."""

    record: Record
    queue: Queue
    now: Moment
    diagnosis: Diagnosis
    # Live workers that serve the queue.
    workers: Sequence[WorkerInfo] = ()
    # When work on the queue last ended. Only known if no worker serves it.
    worked_at: Moment = 0
    # When the agents of some process last did something, by agent.
    agents: Sequence[AgentRun] = ()
    # The state of the message that holds the key, or None if the caller may not see it.
    holder_state: State | None = None
    # The holds of the message, and how many of the messages it waits for have not ended.
    holds: Sequence[StoredHold] = ()
    open_edges: int = 0
