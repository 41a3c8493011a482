"""Logs trouble with a store once for all who notice it, and once more when it is over."""

import threading
import time
from collections.abc import Callable
from typing import Literal

from penstock.errors import OutcomeUnknown, StoreError, StoreUnreachable

REPEAT_INTERVAL_S = 30.0
# Calls under way when a store comes back may still fail: they are no new outage.
SETTLING_S = 5.0
# The outage of all sources.
SHARED = ""


class Outage:
    """One stretch of trouble: since when, and when the next line about it is due."""

    def __init__(self, began_at: float, next_line_at: float) -> None:
        self.began_at = began_at
        self.next_line_at = next_line_at
        self.is_logged = False


class Outages:
    """Shared by everything in one process that talks to one store. Any thread may report.

    A store that cannot be reached is one outage, whoever notices it, and ends when anybody reaches
    it. Other trouble, a full disk for instance, is told apart by where it was noticed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.current: dict[str, Outage] = {}
        self.ended_at: dict[str, float] = {}

    def report_failure(self, source: str, error: StoreError) -> None:
        now, key = self.clock(), key_of(source, error)
        with self.lock:
            if key and SHARED in self.current:
                return
            outage = self.current.get(key) or self._begin(key, now)
            if now < outage.next_line_at:
                return
            outage.next_line_at = now + REPEAT_INTERVAL_S
            outage.is_logged = True
        event = "store_failing" if key else "store_unreachable"
        write("error", event, source=source, error=str(error), seconds=since(outage, now))

    def _begin(self, key: str, now: float) -> Outage:
        settled_at = self.ended_at.get(key, now - SETTLING_S) + SETTLING_S
        outage = self.current[key] = Outage(now, max(now, settled_at))
        return outage

    def report_success(self, source: str) -> None:
        """The source has just reached the store."""
        if self.current:
            self._end(SHARED)
            self._end(source)

    def _end(self, key: str) -> None:
        now = self.clock()
        with self.lock:
            outage = self.current.pop(key, None)
            if outage is None:
                return
            self.ended_at[key] = now
        if outage.is_logged:
            where = {"source": key} if key else {}
            write("warning", "store_recovered", **where, seconds=since(outage, now))


def write(level: Literal["warning", "error"], event: str, **fields: object) -> None:
    # Not quickly loaded, and few commands log.
    import structlog

    getattr(structlog.get_logger(), level)(event, **fields)


def key_of(source: str, error: StoreError) -> str:
    """Where trouble is told apart. A connection that breaks off is an outage of the store."""
    return SHARED if isinstance(error, StoreUnreachable | OutcomeUnknown) else source


def since(outage: Outage, now: float) -> float:
    return round(now - outage.began_at, 1)
