"""Retry policies: attempts, delays and deadlines of every path.

A path has one loop. What it calls does not retry on its own, so that bounds never multiply: a
store verb runs one transaction per attempt, and the loop around it counts conflicts, locked rows
and lost answers alike. A loop begins its retries at the first failure, so success costs nothing:

    retries: Retries | None = None
    while True:
        outcome = await attempt()
        if outcome is not BUSY:
            return outcome
        retries = retries or PUBLISH.begin()
        if not await retries.again():
            return outcome

docs/decisions/0040-retries.md lists every path with its bounds.
"""

import asyncio
import random
import time

from msgspec import Struct


class RetryPolicy(Struct, frozen=True):
    """The bounds of one path.

    `attempts` counts the first one. `delay` is slept on average before each further attempt. No
    attempt begins later than `deadline` seconds after the first one failed.
    """

    attempts: int
    delay: float
    deadline: float

    def begin(self) -> "Retries":
        """Starts the deadline. Call it after the first attempt has failed."""
        return Retries(self)


class Retries:
    """The attempts left to one call. The items of a batch share them."""

    __slots__ = ("delay", "ends_at", "left")

    def __init__(self, policy: RetryPolicy) -> None:
        self.delay = policy.delay
        self.left = policy.attempts - 1
        self.ends_at = time.monotonic() + policy.deadline

    async def again(self) -> bool:
        """Sleeps and returns True, or returns False if no attempt is left.

        Sleeps half the delay at least, and the delay on average: callers that failed together
        would fail together again.
        """
        if not self.again_at_once():
            return False
        await asyncio.sleep(self.delay * (0.5 + random.random()))
        return True

    def again_at_once(self) -> bool:
        """Does the same without sleeping."""
        if self.left <= 0 or time.monotonic() + self.delay > self.ends_at:
            return False
        self.left -= 1
        return True


# Stores.

# A transaction, after a deadlock or another conflict, and a claim after a brief lock.
TRANSACTION = RetryPolicy(attempts=10, delay=0.0, deadline=2.0)
# Items of a complete, settle, extend or cancel whose rows or keys are locked.
LOCKED = RetryPolicy(attempts=5, delay=0.01, deadline=1.0)
# A redrive, purge or replacement of one dead letter that is locked.
DEAD_LETTER = RetryPolicy(attempts=30, delay=0.05, deadline=1.5)
# A Redis command, after the store moved to another shard of a cluster.
MOVED = RetryPolicy(attempts=5, delay=0.1, deadline=5.0)
# A change of a Redis queue, after a concurrent change.
QUEUE_CHANGE = RetryPolicy(attempts=20, delay=0.01, deadline=5.0)
# The turn to migrate, and the end of another process's migration.
MIGRATION_TURN = RetryPolicy(attempts=600, delay=0.1, deadline=60.0)
MIGRATION_CHECK = RetryPolicy(attempts=30, delay=0.1, deadline=3.0)

# Broker.

# Entries whose keys are locked (BUSY), and entries with dedup keys whose answer was lost.
PUBLISH = RetryPolicy(attempts=50, delay=0.1, deadline=5.0)
# A settle whose lease changed after it was read.
SETTLE = RetryPolicy(attempts=10, delay=0.0, deadline=2.0)
# A step or a wait whose lease is locked for a moment, for example by its renewal.
SAVE_STEP = RetryPolicy(attempts=100, delay=0.02, deadline=5.0)
# A claim that only ended expired messages; the expirer ends the rest.
CLAIM = RetryPolicy(attempts=100, delay=0.0, deadline=2.0)
# A forced delete of a queue that still receives messages.
DELETE_QUEUE = RetryPolicy(attempts=10_000, delay=0.0, deadline=60.0)

# A change of a stored document: it is read, changed and saved by its version, without a delay.
DOCUMENT_SAVE_ATTEMPTS = 10
# Many clients may start bulk actions at once, and all of them take the next number.
BULK_SAVE_ATTEMPTS = 50
# A publish to a broadcast queue whose subscriptions changed meanwhile; they are read again.
STALE_PUBLISH_ATTEMPTS = 10

# Background loops run until they are stopped; their delay is what bounds them.

# Workers: results, renewals and marks, which hold leases.
LEASE_RETRY_DELAY_S = 0.5
# Workers: claims and other steps. Stores: the connection on which notices arrive.
LOOP_RETRY_DELAY_S = 1.0

# Webhooks about alerts and human steps. They are never dropped, because later ones would contradict
# them; the delay doubles up to the maximum.
FIRST_WEBHOOK_DELAY_S = 5.0
MAX_WEBHOOK_DELAY_S = 900.0


def compute_webhook_delay(attempts: int) -> float:
    """Returns the seconds to wait after this many attempts and one more have failed."""
    return min(FIRST_WEBHOOK_DELAY_S * 2.0 ** min(attempts, 10), MAX_WEBHOOK_DELAY_S)


# Other paths.

# The rename of an uploaded artifact, after its directory was removed.
UPLOAD = RetryPolicy(attempts=3, delay=0.0, deadline=5.0)
# A count of a store that changed meanwhile.
CENSUS = RetryPolicy(attempts=5, delay=0.0, deadline=60.0)
# A read or a publish with dedup keys over HTTP, without a response.
REMOTE_CALL = RetryPolicy(attempts=4, delay=0.25, deadline=5.0)
# A settle or an extension over HTTP, for as long as a lease of the default length lasts.
REMOTE_SETTLE = RetryPolicy(attempts=60, delay=0.5, deadline=30.0)

# The renewal of a subscription, after a concurrent change.
SUBSCRIPTION = RetryPolicy(attempts=10, delay=0.0, deadline=5.0)
# A batch of the Spark sink, while the store is busy or unreachable, or its answer was lost.
SPARK_SINK = RetryPolicy(attempts=50, delay=0.1, deadline=30.0)
# A commit to a Delta log, after another process took its version.
DELTA_COMMIT = RetryPolicy(attempts=100, delay=0.0, deadline=60.0)
