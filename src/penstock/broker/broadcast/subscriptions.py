"""Manages the durable subscriptions of broadcast queues."""

from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.broker.broadcast.fanout import decode_set, make_set_name, parse_subscription_filter
from penstock.broker.messages import Admin
from penstock.broker.queues import PURGEABLE
from penstock.errors import Busy, Conflict, InvalidInput, InvalidState, NotFound
from penstock.model.broadcast import (
    BROADCAST,
    BROADCAST_CATCH_UP,
    BROADCAST_CLAIM,
    DEFAULT_MAX_DEPTH,
    MAX_SUBSCRIPTIONS,
    BroadcastSet,
    BroadcastSubscription,
    make_child_name,
)
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.model.queue import Queue, QueueState
from penstock.model.settings import MAX_DURATION_S, QueueSettings, change
from penstock.model.store_types import Cursor
from penstock.retry_policies import DOCUMENT_SAVE_ATTEMPTS
from penstock.rules.filter_match import list_fields
from penstock.rules.validation import check_name, check_number, clip

# Fields that a filter can test when a message is published.
PUBLISHED_FIELDS = frozenset({
    "queue", "scope", "type", "name", "key", "correlation", "causation", "parent", "priority",
    "label", "header", "body", "size",
})  # fmt: skip
# The settings of the queue that a subscription may have of its own.
OWN_SETTINGS = frozenset({
    "ordering", "max_attempts", "max_deliveries", "retry", "backoff", "lease", "max_depth",
    "retention", "dead_retention", "filter_by_type",
})  # fmt: skip
MIN_TTL_S = 60.0
PURGE_BATCH = 1_000
encode = msgspec.json.Encoder().encode


class Broadcasts:
    """The subscriptions of a tenant's broadcast queues, as a caller may manage them."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.store = admin.store
        self.directory = admin.directory

    async def subscribe(
        self,
        /,
        queue: str,
        name: str,
        *,
        filter: str = "",
        ttl: float | None = None,
        start: str | Moment = "now",
        scope: str = "default",
        **settings: Any,
    ) -> BroadcastSubscription:
        """Creates the subscription, or changes its filter, ttl and settings.

        Every publish after the return is copied to it. `start` is "now", "earliest" or a moment;
        it counts only when the subscription is created.
        """
        check_spec(name, filter, ttl, settings)
        parent = await self._get_queue(queue, scope)
        await self._ensure_child(parent, name, settings)
        asked = BroadcastSubscription(name=name, filter=filter, ttl=ttl, start=read_start(start))
        for _ in range(DOCUMENT_SAVE_ATTEMPTS):
            if (made := await self._save(parent, asked)) is not None:
                return made
        raise Busy(f"the subscriptions of queue {queue!r} are being changed; try again")

    async def list_subscriptions(
        self, queue: str, *, scope: str = "default"
    ) -> list[BroadcastSubscription]:
        _, found = await self._read(await self._get_queue(queue, scope))
        return list(found.subscriptions)

    async def get(self, queue: str, name: str, *, scope: str = "default") -> BroadcastSubscription:
        for each in await self.list_subscriptions(queue, scope=scope):
            if each.name == name:
                return each
        raise NotFound(f"queue {queue!r} has no subscription named {clip(name)}")

    async def unsubscribe(self, queue: str, name: str, *, scope: str = "default") -> int:
        """Deletes the subscription and cancels its messages. Returns how many."""
        await self.get(queue, name, scope=scope)
        parent = await self._get_queue(queue, scope)
        for _ in range(DOCUMENT_SAVE_ATTEMPTS):
            if await self._remove(parent, name):
                return await self._drop_child(parent, name)
        raise Busy(f"the subscriptions of queue {queue!r} are being changed; try again")

    async def delete_all(self, queue: Queue, *, force: bool) -> None:
        """Deletes the subscriptions of a queue, or raises InvalidState without `force`."""
        _, found = await self._read(queue)
        names = [each.name for each in found.subscriptions]
        if names and not force:
            raise InvalidState(
                f"queue {queue.name!r} has subscriptions: {', '.join(names)}; delete them first,"
                " or use force"
            )
        for name in names:
            await self.unsubscribe(queue.name, name, scope=queue.scope.name)

    async def mark_live(self, parent: Queue, name: str) -> None:
        """Records that a subscription has caught up. Another process may have done so."""
        await self._mark(parent, name, catching_up=False)

    async def mark_full(self, parent: Queue, name: str, full: bool) -> None:
        """Records whether the limit of a subscription is reached."""
        await self._mark(parent, name, full=full)

    async def _mark(self, parent: Queue, name: str, **marks: bool) -> None:
        version, found = await self._read(parent)
        marked = tuple(
            replace(each, **marks) if each.name == name else each for each in found.subscriptions
        )
        if marked != found.subscriptions:
            await self._write(parent, version, marked)

    async def _get_queue(self, name: str, scope: str) -> Queue:
        queue = await self.admin.queue(name, scope=scope)
        if queue.settings.kind != "broadcast":
            raise InvalidState(
                f"queue {name!r} takes no subscriptions: its setting kind is"
                f" {queue.settings.kind!r}, not 'broadcast'"
            )
        return queue

    async def _read(self, queue: Queue) -> tuple[int, BroadcastSet]:
        document = await self.store.document(BROADCAST, make_set_name(queue))
        if document is None:
            return 0, BroadcastSet()
        return document.version or 0, decode_set(document.body)

    async def _save(
        self, parent: Queue, asked: BroadcastSubscription
    ) -> BroadcastSubscription | None:
        """Returns None if another request changed the set since it was read."""
        version, found = await self._read(parent)
        others = [each for each in found.subscriptions if each.name != asked.name]
        before = next((each for each in found.subscriptions if each.name == asked.name), None)
        if before is None and len(others) >= MAX_SUBSCRIPTIONS:
            raise Conflict(f"queue {parent.name!r} has {MAX_SUBSCRIPTIONS} subscriptions already")
        now = await self.store.now()
        made = make_subscription(asked, before, version + 1, now)
        if made == before:
            return made
        saves = self._make_claim(parent, made, now)
        if before is None and made.catching_up:
            saves += (self._make_catch_up(parent, made.name),)
        written = await self._write(parent, version, (*others, made), saves)
        return made if written else None

    async def _remove(self, parent: Queue, name: str) -> bool:
        version, found = await self._read(parent)
        others = tuple(each for each in found.subscriptions if each.name != name)
        child = make_child_key(parent, name)
        deletes = ((BROADCAST_CLAIM, child), (BROADCAST_CATCH_UP, child))
        return await self._write(parent, version, others, (), deletes)

    async def _write(
        self,
        parent: Queue,
        version: int,
        subscriptions: tuple[BroadcastSubscription, ...],
        saves: tuple[Document, ...] = (),
        deletes: tuple[tuple[str, str], ...] = (),
    ) -> bool:
        ordered = tuple(sorted(subscriptions, key=lambda each: each.name))
        body = encode(BroadcastSet(ordered))
        guard = Document(kind=BROADCAST, name=make_set_name(parent), body=body, version=version)
        change = Change(guards=(guard,), saves=saves, deletes=deletes, touch_directory=True)
        written = await self.store.advance(change) is not None
        self.directory.forget()
        return written

    def _make_claim(
        self, parent: Queue, made: BroadcastSubscription, now: Moment
    ) -> tuple[Document, ...]:
        """Returns the document that expires when the subscription was not claimed from."""
        if made.ttl is None:
            return ()
        expires_at = now + int(made.ttl * MICROS_PER_SECOND)
        name = make_child_key(parent, made.name)
        return (Document(kind=BROADCAST_CLAIM, name=name, body=b"", expires_at=expires_at),)

    def _make_catch_up(self, parent: Queue, name: str) -> Document:
        body = encode(Cursor())
        return Document(kind=BROADCAST_CATCH_UP, name=make_child_key(parent, name), body=body)

    async def _ensure_child(self, parent: Queue, name: str, settings: dict[str, Any]) -> None:
        """Creates the queue of the subscription, or gives it these settings."""
        child_name = make_child_name(parent.name, name)
        wanted = make_child_settings(parent.settings, settings)
        key = (parent.scope.tenant, parent.scope.name, child_name)
        await self.directory.refresh()
        child = self.directory.by_name.get(key)
        if child is None:
            await self.store.create_queue(parent.scope.id, child_name, wanted)
        elif child.settings != wanted or child.state is not QueueState.ACTIVE:
            await self.store.change_queue(child.id, state=QueueState.ACTIVE, settings=wanted)
        self.directory.forget()

    async def _drop_child(self, parent: Queue, name: str) -> int:
        """Cancels what waits in the queue of a deleted subscription, and deletes the queue.

        While one of its messages is being worked on, the queue stays, draining.
        """
        await self.directory.refresh()
        key = (parent.scope.tenant, parent.scope.name, make_child_name(parent.name, name))
        child = self.directory.by_name.get(key)
        if child is None:
            return 0
        await self.store.change_queue(child.id, state=QueueState.DRAINING)
        cancelled = 0
        while count := await self.store.purge(child.id, PURGEABLE, PURGE_BATCH):
            cancelled += count
        await self.store.delete_queue(child.id)
        self.directory.forget()
        return cancelled


def make_child_key(parent: Queue, name: str) -> str:
    """Returns the name of the documents of a subscription."""
    return f"{make_set_name(parent)}/{name}"


def make_subscription(
    asked: BroadcastSubscription, before: BroadcastSubscription | None, version: int, now: Moment
) -> BroadcastSubscription:
    if before is not None:
        return replace(before, filter=asked.filter, ttl=asked.ttl)
    return replace(asked, version=version, created_at=now, catching_up=asked.start is not None)


def make_child_settings(parent: QueueSettings, settings: dict[str, Any]) -> QueueSettings:
    base = replace(
        parent,
        kind="competing",
        require_subscriber=False,
        overflow="dead",
        max_depth=DEFAULT_MAX_DEPTH,
    )
    return change(base, settings)


def check_spec(name: str, filter: str, ttl: float | None, settings: dict[str, Any]) -> None:
    check_name("subscription", name)
    check_number("ttl", ttl, MIN_TTL_S, MAX_DURATION_S)
    node = parse_subscription_filter(filter)
    for term in list_fields(node) if node is not None else ():
        if term.field not in PUBLISHED_FIELDS:
            known = ", ".join(sorted(PUBLISHED_FIELDS))
            raise InvalidInput(
                f"filter: {term.field} is not known when a message is published; use {known}"
            )
    if unknown := sorted(settings.keys() - OWN_SETTINGS):
        raise InvalidInput(
            f"a subscription has no setting {unknown[0]!r}; it may have"
            f" {', '.join(sorted(OWN_SETTINGS))}"
        )


def read_start(start: str | Moment) -> Moment | None:
    if start == "now":
        return None
    if start == "earliest":
        return 0
    if isinstance(start, int) and start >= 0:
        return start
    raise InvalidInput(f"start is {clip(start)}; it must be 'now', 'earliest' or a moment")
