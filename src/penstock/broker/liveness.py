"""Decides whether a registered worker is still alive."""

import os
import socket

from penstock.model.message import Moment
from penstock.model.store_types import WorkerInfo

# How often a worker renews its registration.
HEARTBEAT_INTERVAL_S = 30.0
GONE_AFTER_MICROS = 3 * HEARTBEAT_INTERVAL_S * 1_000_000


def is_gone(worker: WorkerInfo, now: Moment) -> bool:
    """True if its heartbeat is overdue, or if its process on this host has exited."""
    if now - worker.seen_at > GONE_AFTER_MICROS:
        return True
    return worker.host == socket.gethostname() and not is_process_running(worker.pid)


def is_process_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
