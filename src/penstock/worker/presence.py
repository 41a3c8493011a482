"""Rules: is a worker that said it is there still there."""

import os
import socket

from penstock.message import Moment
from penstock.ticket import Working

# A worker says every 30 s that it is there.
SAYS_EVERY = 30.0
SILENT = 3 * SAYS_EVERY * 1_000_000


def gone(worker: Working, now: Moment) -> bool:
    """It has been silent for long, or it was on this machine and is not any more."""
    if now - worker.seen_at > SILENT:
        return True
    return worker.host == socket.gethostname() and not running(worker.pid)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
