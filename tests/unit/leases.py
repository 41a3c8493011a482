"""A lease to ask the rules about."""

from typing import Any

from msgspec.structs import replace

from penstock.model.message import PLAIN
from penstock.model.store_types import Lease

SECOND = 1_000_000
NOW = 1_900_000_000 * SECOND

# On its second delivery, after one counted attempt, a second past its lease.
LEASE = Lease(
    id=7,
    fence=3,
    queue_id=1,
    attempts=1,
    deliveries=2,
    flags=0,
    claimed_at=NOW - 31 * SECOND,
    lease_until=NOW - SECOND,
    length=30.0,
    now=NOW,
    meta=PLAIN,
    first_claimed_at=NOW - 60 * SECOND,
)


def lease(**changes: Any) -> Lease:
    return replace(LEASE, **changes)


def half() -> float:
    """A draw in the middle: jitter that spreads both ways vanishes."""
    return 0.5
