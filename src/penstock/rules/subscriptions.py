"""Rules: which subscribers are notified of work, and how often."""

from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal

from msgspec import Struct

from penstock.errors import InvalidInput
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.model.queue import Queue

# Every subscriber, one of each group in turn, or always the same one.
Mode = Literal["fanout", "group", "hash"]


class WebhookSubscription(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A subscriber to work. `notified_at` holds when it was last notified of each queue."""

    id: str
    tenant: str
    scope: str
    url: str
    queues: tuple[str, ...]
    types: tuple[str, ...] = ()
    mode: Mode = "fanout"
    group: str | None = None
    ttl: float = 300.0
    min_interval: float = 5.0
    notified_at: dict[str, Moment] = {}

    def __post_init__(self) -> None:
        if (self.mode == "group") is (self.group is None):
            raise InvalidInput(
                "mode 'group' requires a group name, and other modes do not accept one"
            )

    def may_notify(self, since: Moment, now: Moment) -> bool:
        return now - since >= self.min_interval * MICROS_PER_SECOND


def choose_notices(
    waiting: Sequence[tuple[Queue, Sequence[WebhookSubscription]]], now: Moment
) -> list[tuple[Queue, WebhookSubscription]]:
    """Gives each subscriber at most one notice: about the queue it was notified of longest ago.

    `waiting` holds the queues with work and their subscribers. Subscribers that were notified
    longest ago come first.
    """
    oldest: dict[str, tuple[Moment, Queue, WebhookSubscription]] = {}
    for queue, subscribers in waiting:
        for each in choose_subscribers(subscribers, queue.name, now):
            at = each.notified_at.get(queue.name, 0)
            if each.id not in oldest or at < oldest[each.id][0]:
                oldest[each.id] = (at, queue, each)
    notices = [(queue, each) for _, queue, each in oldest.values()]
    return sorted(notices, key=lambda notice: max(notice[1].notified_at.values(), default=0))


def choose_subscribers(
    subscribers: Sequence[WebhookSubscription], queue: str, now: Moment
) -> list[WebhookSubscription]:
    """Chooses the subscribers to notify now that the queue has work, within their own limits."""
    rested = [
        each
        for each in subscribers
        if each.may_notify(max(each.notified_at.values(), default=0), now)
    ]
    one_by_one = [each for each in rested if each.mode == "fanout"]
    return [
        *one_by_one,
        *choose_in_turn(subscribers, rested, queue, now),
        *choose_by_hash(subscribers, rested, queue),
    ]


def choose_in_turn(
    subscribers: Sequence[WebhookSubscription],
    rested: Sequence[WebhookSubscription],
    queue: str,
    now: Moment,
) -> list[WebhookSubscription]:
    """Chooses from each group the member notified longest ago, within the limit of the group."""
    found: list[WebhookSubscription] = []
    for members in group_subscribers(subscribers):
        last = max(each.notified_at.get(queue, 0) for each in members)
        able = [each for each in members if each in rested]
        if not able:
            continue
        turn = min(able, key=lambda each: last_notified(each, queue))
        if turn.may_notify(last, now):
            found.append(turn)
    return found


def group_subscribers(
    subscribers: Sequence[WebhookSubscription],
) -> list[list[WebhookSubscription]]:
    found: defaultdict[str, list[WebhookSubscription]] = defaultdict(list)
    for each in subscribers:
        if each.group is not None:
            found[each.group].append(each)
    return list(found.values())


def last_notified(subscriber: WebhookSubscription, queue: str) -> tuple[Moment, str]:
    return subscriber.notified_at.get(queue, 0), subscriber.id


def choose_by_hash(
    subscribers: Sequence[WebhookSubscription], rested: Sequence[WebhookSubscription], queue: str
) -> list[WebhookSubscription]:
    """Chooses one per queue by hash, so that the end of one subscriber does not move the others."""
    candidates = [each for each in subscribers if each.mode == "hash"]
    if not candidates:
        return []
    one = min(candidates, key=lambda each: compute_weight(each, queue))
    return [one] if one in rested else []


def compute_weight(subscriber: WebhookSubscription, queue: str) -> tuple[bytes, str]:
    text = f"{queue} {subscriber.url}".encode()
    return blake2b(text, digest_size=8).digest(), subscriber.id
