"""Brings what a handler logs in a process of its own to the worker's log."""

import logging
from collections.abc import Callable
from logging.handlers import QueueHandler
from queue import SimpleQueue


def level_to_forward() -> int | None:
    """None if this process has no log that records could come to."""
    root = logging.getLogger()
    return root.level if root.handlers else None


def forward_records(level: int | None, send: Callable[[logging.LogRecord], None]) -> None:
    """In the child, unless its code has said where its log goes."""
    root = logging.getLogger()
    if level is not None and not root.handlers:
        root.addHandler(ForwardingHandler(send))
        root.setLevel(level)


class ForwardingHandler(QueueHandler):
    """Makes records fit to be sent, as its base does for queues."""

    def __init__(self, send: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(SimpleQueue())
        self.send = send

    def enqueue(self, record: logging.LogRecord) -> None:
        self.send(record)


def handle_record(record: logging.LogRecord) -> None:
    """In the worker, as if it had been logged here."""
    logging.getLogger(record.name).handle(record)
