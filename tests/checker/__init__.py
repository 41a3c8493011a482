"""The history checker: reads what processes recorded in a storm and reports broken promises."""

from .check import check
from .events import (
    Answer,
    Cancel,
    Claim,
    Claimed,
    End,
    Fault,
    Fire,
    Plan,
    Publish,
    Queue,
    Redrive,
    Row,
    Schedule,
    Settle,
    Signal,
    Stored,
)
from .history import History, assemble
from .reading import read
from .recorder import Recorder
from .report import Kind, Latency, Measures, Report, Violation

__all__ = [
    "Answer",
    "Cancel",
    "Claim",
    "Claimed",
    "End",
    "Fault",
    "Fire",
    "History",
    "Kind",
    "Latency",
    "Measures",
    "Plan",
    "Publish",
    "Queue",
    "Recorder",
    "Redrive",
    "Report",
    "Row",
    "Schedule",
    "Settle",
    "Signal",
    "Stored",
    "Violation",
    "assemble",
    "check",
    "read",
]
