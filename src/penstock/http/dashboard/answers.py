"""Answers that open pages share, made once for all callers with the same rights."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from weakref import WeakValueDictionary

from penstock.http.auth.principal import Principal
from penstock.wire.dashboard import FailureCauses

# Callers with different rights, and different parameters.
MAX_ANSWERS = 50
# Causes are read again after so many seconds, or so many times what reading them took.
CAUSES_FRESH_S = 10.0
CAUSES_COST_FACTOR = 50


def describe_rights(caller: Principal, scope: str) -> Hashable:
    """Returns an equal value for callers that may see the same."""
    access = caller.access
    return (caller.tenant, scope, access.grants, access.scopes, access.trusts)


class EncodedAnswers:
    """Keeps the last answer for each key. It holds while its ETag is the same."""

    def __init__(self) -> None:
        self.answers: dict[Hashable, tuple[str, bytes]] = {}

    def find(self, key: Hashable, etag: str) -> bytes | None:
        known = self.answers.get(key)
        return known[1] if known is not None and known[0] == etag else None

    def keep(self, key: Hashable, etag: str, body: bytes) -> None:
        self.answers.pop(key, None)
        while len(self.answers) >= MAX_ANSWERS:
            del self.answers[next(iter(self.answers))]
        self.answers[key] = (etag, body)


class CauseCache:
    """Keeps the causes of failure for a time: every page asks for them, and they are costly."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        # Until when they hold, and the causes.
        self.causes: dict[Hashable, tuple[float, FailureCauses]] = {}
        # Callers with equal rights wait for one reading. A lock lives as long as it is used.
        self.reading: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def get(
        self, key: Hashable, read: Callable[[], Awaitable[FailureCauses]]
    ) -> FailureCauses:
        lock = self.reading.setdefault(key, asyncio.Lock())
        async with lock:
            known = self.causes.pop(key, None)
            if known is None or self.clock() >= known[0]:
                began = self.clock()
                found = await read()
                took = self.clock() - began
                known = (began + max(CAUSES_FRESH_S, CAUSES_COST_FACTOR * took), found)
            while len(self.causes) >= MAX_ANSWERS:
                del self.causes[next(iter(self.causes))]
            self.causes[key] = known
            return known[1]
