"""Broadcast queues: the durable subscriptions that each get a copy of every message."""

from msgspec import Struct

from penstock.model.message import Moment

# Kinds of documents: the subscriptions of a queue, which expire without a claim, and how far a
# subscription with an earlier start has caught up.
BROADCAST, BROADCAST_CLAIM, BROADCAST_CATCH_UP = (
    "broadcast",
    "broadcast_claim",
    "broadcast_catch_up",
)
MAX_SUBSCRIPTIONS = 100
MAX_FANOUT_BYTES = 64 * 1_048_576
SEPARATOR = "/"
# Messages that may wait in a subscription that says nothing else.
DEFAULT_MAX_DEPTH = 100_000
# Publishes count what waits up to this depth; whether a larger limit is reached is looked up once
# a minute, so that a publish stays cheap.
MAX_COUNTED_DEPTH = 10_000


class BroadcastSubscription(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A durable subscription of a broadcast queue. Its messages wait in `queue/name`."""

    name: str
    # Which messages it gets, in the language of searches; all if it is empty.
    filter: str = ""
    # Seconds without a claim after which it is deleted.
    ttl: float | None = None
    # Messages published from this moment on; None means since it was created.
    start: Moment | None = None
    # The version of the set of subscriptions that it first belonged to.
    version: int = 0
    created_at: Moment = 0
    # Older messages are still being copied, so newer ones may come before older ones.
    catching_up: bool = False
    # Its limit is larger than publishes count, and was reached when an agent last looked.
    full: bool = False


class BroadcastSet(Struct, frozen=True):
    """All subscriptions of a queue. The version of its document is the version of the set."""

    subscriptions: tuple[BroadcastSubscription, ...] = ()


def make_child_name(queue: str, subscription: str) -> str:
    """Returns the name of the queue of a subscription."""
    return f"{queue}{SEPARATOR}{subscription}"
