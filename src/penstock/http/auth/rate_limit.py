"""Rate limits: token buckets by name."""

import time
from collections import OrderedDict
from collections.abc import Callable

MAX_BUCKETS = 10_000


class TokenBucket:
    __slots__ = ("at", "left", "rate", "size")

    def __init__(self, rate: float, size: float, now: float) -> None:
        self.rate = rate
        self.size = self.left = size
        self.at = now

    def take(self, now: float) -> bool:
        self.left = min(self.size, self.left + (now - self.at) * self.rate)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class RateLimiter:
    """One bucket per name. The least recently used bucket is dropped when there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.all: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, name: str, rate: float, size: float) -> bool:
        now = self.clock()
        bucket = self.all.get(name)
        if bucket is None or bucket.rate != rate:
            bucket = self.all[name] = TokenBucket(rate, size, now)
            if len(self.all) > MAX_BUCKETS:
                self.all.popitem(last=False)
        else:
            self.all.move_to_end(name)
        return bucket.take(now)

    def is_spent(self, name: str) -> bool:
        """True if the bucket is empty. Takes nothing."""
        bucket = self.all.get(name)
        return bucket is not None and bucket.left + (self.clock() - bucket.at) * bucket.rate < 1
