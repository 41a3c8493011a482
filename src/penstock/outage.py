"""Logs store outages once per process, and their end."""

import threading
import time
from collections.abc import Callable
from typing import Literal

from penstock.errors import OutcomeUnknown, StoreError, StoreUnreachable, StoreUnusable

REPEAT_INTERVAL_S = 30.0
# Calls in flight when a store recovers may still fail; they are not a new outage.
SETTLING_S = 5.0
# The keys of outages that sources share.
SHARED, UNUSABLE = "", "unusable"


class Outage:
    """One outage: when it began, who reported it, and when it is logged next."""

    def __init__(self, began_at: float, next_line_at: float) -> None:
        self.began_at = began_at
        self.next_line_at = next_line_at
        self.is_logged = False
        self.sources: set[str] = set()


class Outages:
    """Tracks outages of one store for a whole process. Any thread may report.

    An unreachable store is one outage for all sources, and ends when any of them reaches it. An
    unusable store, such as a removed file, is one outage for the sources that reported it. Other
    failures, such as a full disk, are tracked by source.
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
            outage.sources.add(source)
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
        """Ends the outage: the source has just reached the store."""
        if self.current:
            for key in self._keys_ended_by(source):
                self._end(key)

    def _keys_ended_by(self, source: str) -> list[str]:
        with self.lock:
            found = self.current.items()
            return [key for key, each in found if key == SHARED or source in each.sources]

    def _end(self, key: str) -> None:
        now = self.clock()
        with self.lock:
            outage = self.current.pop(key, None)
            if outage is None:
                return
            self.ended_at[key] = now
        if outage.is_logged:
            where = {} if key in (SHARED, UNUSABLE) else {"source": key}
            write("warning", "store_recovered", **where, seconds=since(outage, now))


def write(level: Literal["warning", "error"], event: str, **fields: object) -> None:
    # Imported late: it is slow to load, and few commands log.
    import structlog

    getattr(structlog.get_logger(), level)(event, **fields)


def key_of(source: str, error: StoreError) -> str:
    """Returns the key of the outage. A broken connection counts as an unreachable store."""
    if isinstance(error, StoreUnreachable | OutcomeUnknown):
        return SHARED
    return UNUSABLE if isinstance(error, StoreUnusable) else source


def since(outage: Outage, now: float) -> float:
    return round(now - outage.began_at, 1)
