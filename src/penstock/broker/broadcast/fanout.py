"""Fans messages of broadcast queues out to their subscriptions."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.documents import list_documents
from penstock.errors import BodyTooLarge, NoSubscriber
from penstock.model.broadcast import (
    BROADCAST,
    MAX_COUNTED_DEPTH,
    MAX_FANOUT_BYTES,
    BroadcastSet,
    BroadcastSubscription,
    make_child_name,
)
from penstock.model.filter import Candidate, Node
from penstock.model.message import Draft, State
from penstock.model.queue import Queue
from penstock.model.settings import QueueSettings
from penstock.model.store_types import Entry
from penstock.model.units import PARENT, Unit
from penstock.rules.drafts import check_and_make_entry, make_entry
from penstock.rules.filter_match import matches
from penstock.rules.filter_parser import parse_filter
from penstock.rules.priority import clamp_priority
from penstock.store import StoreRecords

QueueKey = tuple[str, str, str]
REASON = "broadcast"
decode_set = msgspec.json.Decoder(BroadcastSet).decode


class Receiver(Struct, frozen=True):
    """A subscription with its parsed filter and its queue."""

    subscription: BroadcastSubscription
    filter: Node | None
    queue: Queue

    def wants(self, candidate: Candidate) -> bool:
        return self.filter is None or matches(self.filter, candidate)


class Fanout(Struct, frozen=True):
    """The receivers of a broadcast queue, and the version of their set."""

    version: int = 0
    receivers: tuple[Receiver, ...] = ()


class BroadcastPolicy:
    """The subscriptions of all broadcast queues, as of one version of the directory."""

    def __init__(self, fanouts: Mapping[QueueKey, Fanout]) -> None:
        self.fanouts = fanouts
        # Subscriptions that need claims to live: queue id, then the document's name and the ttl.
        self.expiring = {
            receiver.queue.id: ("/".join((*key, subscription.name)), subscription.ttl)
            for key, fanout in fanouts.items()
            for receiver in fanout.receivers
            if (subscription := receiver.subscription).ttl is not None
        }

    def find(self, queue: Queue) -> Fanout:
        key = (queue.scope.tenant, queue.scope.name, queue.name)
        return self.fanouts.get(key, NO_FANOUT)


NO_FANOUT = Fanout()
NO_BROADCASTS = BroadcastPolicy({})


async def load_broadcasts(store: StoreRecords, queues: Mapping[QueueKey, Queue]) -> BroadcastPolicy:
    if not any(queue.settings.kind == "broadcast" for queue in queues.values()):
        return NO_BROADCASTS
    fanouts: dict[QueueKey, Fanout] = {}
    for document in await list_documents(store, BROADCAST):
        tenant, scope, name = document.name.split("/", 2)
        found = decode_set(document.body).subscriptions
        receivers = []
        for each in found:
            queue = queues.get((tenant, scope, make_child_name(name, each.name)))
            if queue is not None:
                receivers.append(Receiver(each, parse_subscription_filter(each.filter), queue))
        fanouts[tenant, scope, name] = Fanout(document.version or 0, tuple(receivers))
    return BroadcastPolicy(fanouts)


def parse_subscription_filter(text: str) -> Node | None:
    return parse_filter(text, 0) if text else None


def make_set_name(queue: Queue) -> str:
    """Returns the name of the document with the subscriptions of a queue."""
    return f"{queue.scope.tenant}/{queue.scope.name}/{queue.name}"


def fan_out(draft: Draft, queue: Queue, policy: BroadcastPolicy) -> Entry:
    """Makes the parent, which ends at once, with a copy for each subscription that wants it."""
    fanout = policy.find(queue)
    if not fanout.receivers and queue.settings.require_subscriber:
        raise NoSubscriber(
            f"queue {queue.name!r} has no subscription, and its setting require_subscriber is on"
        )
    parent = replace(draft, ordering_key=None, delay=0.0, run_at=None, fan=fanout.version)
    entry = check_and_make_entry(parent, queue)
    candidate = make_draft_candidate(draft, queue)
    wanting = [each for each in fanout.receivers if each.wants(candidate)]
    if len(wanting) * len(draft.body) > MAX_FANOUT_BYTES:
        raise BodyTooLarge(
            f"{len(wanting)} copies of {len(draft.body)} bytes exceed {MAX_FANOUT_BYTES} bytes"
        )
    unit = Unit(
        copies=make_children(draft, wanting),
        state=State.COMPLETED,
        reason=REASON,
        expects=((BROADCAST, make_set_name(queue), fanout.version),),
    )
    return replace(entry, unit=unit)


def make_children(draft: Draft, receivers: Sequence[Receiver]) -> tuple[Entry, ...]:
    """Makes the copies of all subscriptions. Queues with equal settings have equal copies."""
    made: list[Entry] = []
    last: tuple[QueueSettings, bool] | None = None
    for each in receivers:
        if (each.queue.settings, each.subscription.full) == last:
            made.append(replace(made[-1], queue_id=each.queue.id))
        else:
            last = (each.queue.settings, each.subscription.full)
            made.append(make_child(draft, each))
    return tuple(made)


def make_child(draft: Draft, receiver: Receiver, parent_id: int = PARENT) -> Entry:
    """Makes the copy of a subscription. A full subscription keeps it as a dead letter."""
    queue = receiver.queue
    child = replace(
        draft,
        queue=queue.name,
        priority=clamp_priority(draft.priority, queue.settings),
        name=None,
        dedup=None,
        callback=None,
        fan=None,
        parent_id=parent_id,
    )
    return replace(make_entry(child, queue), overflow="dead", max_depth=find_limit(receiver))


def find_limit(receiver: Receiver) -> int | None:
    """Returns up to which depth the store counts before it writes a copy. Of 0, all are full."""
    depth = receiver.queue.settings.max_depth
    if depth is None or depth <= MAX_COUNTED_DEPTH:
        return depth
    return 0 if receiver.subscription.full else None


def make_draft_candidate(draft: Draft, queue: Queue) -> Candidate:
    """Returns what a filter can test when a message is published."""
    return Candidate(
        queue=queue.name,
        scope=queue.scope.name,
        type=draft.type,
        name=draft.name,
        key=draft.ordering_key,
        correlation=draft.correlation_id,
        causation=draft.causation_id,
        parent=draft.parent_id,
        priority=draft.priority,
        labels=draft.labels,
        headers=draft.headers,
        body=draft.body,
        size=len(draft.body),
    )
