"""Rules: is a worker that said it is there still there."""

import os
import socket

from penstock.model.message import Moment
from penstock.model.store_types import WorkerInfo

# A worker says every 30 s that it is there.
HEARTBEAT_INTERVAL_S = 30.0
GONE_AFTER_MICROS = 3 * HEARTBEAT_INTERVAL_S * 1_000_000


def is_gone(worker: WorkerInfo, now: Moment) -> bool:
    """It has been silent for long, or it was on this machine and is not any more."""
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
