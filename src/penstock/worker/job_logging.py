"""Adds the job id to log records, and forwards the records of child processes."""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from logging.handlers import QueueHandler
from queue import SimpleQueue

from penstock.worker.context import Context

# The current run of this task or thread, or its last one.
running: ContextVar[Context | None] = ContextVar("penstock_running", default=None)


class JobLogFilter(logging.Filter):
    """Adds `job_id` and `job_type` of the running job to log records, or None outside of one."""

    # The executor of coroutines tracks the running job from the first filter on.
    in_use = False

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        JobLogFilter.in_use = True

    def filter(self, record: logging.LogRecord) -> bool:
        context = running.get()
        inside = context is not None and not context.over
        record.job_id = context.id if inside and context is not None else None
        record.job_type = context.delivery.type if inside and context is not None else None
        return True


def level_to_forward() -> int | None:
    """Returns the root log level, or None if this process has no log handlers."""
    root = logging.getLogger()
    return root.level if root.handlers else None


def forward_records(level: int | None, send: Callable[[logging.LogRecord], None]) -> None:
    """Installs the forwarding handler in the child, unless its code configured logging."""
    root = logging.getLogger()
    if level is not None and not root.handlers:
        root.addHandler(ForwardingHandler(send))
        root.setLevel(level)


class ForwardingHandler(QueueHandler):
    """Makes records picklable, as QueueHandler does, and sends them."""

    def __init__(self, send: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(SimpleQueue())
        self.send = send

    def enqueue(self, record: logging.LogRecord) -> None:
        self.send(record)


def handle_record(record: logging.LogRecord) -> None:
    """Handles a child's record in the worker as if it was logged here."""
    logging.getLogger(record.name).handle(record)
