"""Copies older messages to subscriptions with an earlier start, and deletes abandoned ones."""

import msgspec
import structlog
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from penstock.broker.broadcast.fanout import Receiver, make_child, make_draft_candidate
from penstock.broker.broadcast.subscriptions import Broadcasts, make_child_key
from penstock.broker.messages import Admin
from penstock.broker.queue_cache import QueueCache
from penstock.errors import NotFound
from penstock.model.broadcast import BROADCAST_CATCH_UP, BROADCAST_CLAIM, MAX_COUNTED_DEPTH
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.fields import copy_message_fields
from penstock.model.message import Draft, FeedMessage
from penstock.model.queue import Queue
from penstock.model.store_types import Cursor, Entry, Feed
from penstock.store import Store

PAGE_SIZE = 200
WATCH, WATCH_EVERY_S = "broadcast_depths", 60.0
# Publishes that were made from older subscriptions have been written, though perhaps not
# committed, this long after the subscription.
GRACE_MICROS = 600 * 1_000_000
encode = msgspec.json.Encoder().encode
log: FilteringBoundLogger = structlog.get_logger()


class CatchUp(Cursor, frozen=True):
    """The position up to which older messages were copied to a subscription. The feed has all of
    them once it is at or above `until`."""

    until: int | None = None


decode_catch_up = msgspec.json.Decoder(CatchUp).decode


class BroadcastFollower:
    name = "broadcast_follower"
    every = 1.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by

    async def tick(self) -> float:
        await self.directory.refresh()
        more = False
        await self._watch_depths()
        for parent, receiver in self._list_receivers():
            subscription = receiver.subscription
            if subscription.ttl is not None and await self._is_abandoned(parent, receiver):
                await self._delete(parent, receiver)
            elif subscription.start is not None and not subscription.full:
                more |= await self._catch_up(parent, receiver)
        return 0.0 if more else self.every

    def _list_receivers(self) -> list[tuple[Queue, Receiver]]:
        by_name, fanouts = self.directory.by_name, self.directory.policy.broadcasts.fanouts
        return [
            (by_name[key], receiver)
            for key, fanout in fanouts.items()
            if key in by_name
            for receiver in fanout.receivers
        ]

    async def _watch_depths(self) -> None:
        """Marks subscriptions whose large limit is reached, and those that have room again."""
        large = [
            (parent, receiver)
            for parent, receiver in self._list_receivers()
            if (receiver.queue.settings.max_depth or 0) > MAX_COUNTED_DEPTH
        ]
        if not large or not await self.store.claim_tick(WATCH, WATCH_EVERY_S, self.by):
            return
        depths = await self.store.depths(0)
        for parent, receiver in large:
            id, limit = receiver.queue.id, receiver.queue.settings.max_depth or 0
            depth = depths.get((id, "ready"), 0) + depths.get((id, "scheduled"), 0)
            name, was_full = receiver.subscription.name, receiver.subscription.full
            # Room for a tenth, so that the mark does not flicker.
            full = depth >= limit * (0.9 if was_full else 1.0)
            if full != was_full:
                await self._manage(parent).mark_full(parent, name, full)
                log.warning("subscription_full" if full else "subscription_has_room",
                            queue=parent.name, subscription=name, depth=depth)  # fmt: skip

    async def _is_abandoned(self, parent: Queue, receiver: Receiver) -> bool:
        name = make_child_key(parent, receiver.subscription.name)
        return await self.store.document(BROADCAST_CLAIM, name) is None

    async def _delete(self, parent: Queue, receiver: Receiver) -> None:
        name = receiver.subscription.name
        try:
            cancelled = await self._manage(parent).unsubscribe(
                parent.name, name, scope=parent.scope.name
            )
        except NotFound:
            # Another process was faster.
            return
        log.warning("subscription_abandoned", queue=parent.name, subscription=name,
                    ttl=receiver.subscription.ttl, cancelled=cancelled)  # fmt: skip

    def _manage(self, parent: Queue) -> Broadcasts:
        return Broadcasts(Admin(self.store, self.directory, parent.scope.tenant))

    async def _catch_up(self, parent: Queue, receiver: Receiver) -> bool:
        """Copies a page of older messages. Returns True if there are more."""
        name = make_child_key(parent, receiver.subscription.name)
        stored = await self.store.document(BROADCAST_CATCH_UP, name)
        if stored is None:
            await self._mark_live(parent, receiver)
            return False
        done = decode_catch_up(stored.body)
        cursor = Cursor(done.epoch, done.message, done.history)
        until = done.until if done.until is not None else await self._find_until(receiver)
        page = await self.store.feed(cursor, PAGE_SIZE)
        if page.cursor == cursor:
            await self._mark_live(parent, receiver)
            if until == done.until:
                return False
        copies = [
            self._copy(message, parent, receiver)
            for message in page.messages
            if self._is_missing(message, parent, receiver)
        ]
        entries = tuple(entry for entry in copies if entry is not None)
        change = make_change(stored, page, entries, until)
        return await self.store.advance(change) is not None

    async def _find_until(self, receiver: Receiver) -> int | None:
        """Returns the position above which the feed has only messages that know the subscription.

        A transaction that may have missed it is still open or has ended, so it is below.
        """
        if await self.store.now() <= receiver.subscription.created_at + GRACE_MICROS:
            return None
        return await self.store.frontier()

    def _is_missing(self, message: FeedMessage, parent: Queue, receiver: Receiver) -> bool:
        """True for messages that were published before the subscription was known."""
        subscription, fan = receiver.subscription, message.meta.fan
        return (
            message.queue_id == parent.id
            and fan is not None
            and fan < subscription.version
            and message.created_at >= (subscription.start or 0)
        )

    def _copy(self, message: FeedMessage, parent: Queue, receiver: Receiver) -> Entry | None:
        draft = Draft(
            queue=parent.name,
            type=message.type,
            priority=message.priority,
            body=message.body,
            **copy_message_fields(message.meta),
            expires_at=message.expires_at,
            path=message.meta.path,
            publisher=message.meta.publisher,
        )
        if not receiver.wants(make_draft_candidate(draft, parent)):
            return None
        return make_child(draft, receiver, message.id)

    async def _mark_live(self, parent: Queue, receiver: Receiver) -> None:
        if receiver.subscription.catching_up:
            await self._manage(parent).mark_live(parent, receiver.subscription.name)


def make_change(
    stored: Document, page: Feed, entries: tuple[Entry, ...], until: int | None
) -> Change:
    """Moves on in the feed, or ends once no message without its copy can be in it any more."""
    if until is not None and page.cursor.message >= until:
        expects = ((stored.kind, stored.name, stored.version or 0),)
        deletes = ((stored.kind, stored.name),)
        return Change(expects=expects, deletes=deletes, entries=entries)
    reached = CatchUp(page.cursor.epoch, page.cursor.message, page.cursor.history, until=until)
    return Change(guards=(replace(stored, body=encode(reached)),), entries=entries)
