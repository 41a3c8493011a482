"""The hub of live events: listeners, filters and the events they receive."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import cached_property

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.http.events.frames import KEEPALIVE, make_frame
from penstock.model.documents import AuditEntry
from penstock.model.filter import Candidate, Node
from penstock.model.live_events import Audience
from penstock.model.message import State
from penstock.model.queue import EVERY
from penstock.rules.events import (
    ACT,
    CLAIMED,
    EXTENDED,
    HISTORY_KINDS,
    HUMAN_DECIDED,
    HUMAN_OPENED,
    LIVE_WAIT_KINDS,
    PUBLISHED,
    STATES,
    is_id,
)
from penstock.rules.filter_match import matches
from penstock.store import Store
from penstock.wire.fields import Time

# Listeners that are woken in one turn of the event loop.
MAX_WOKEN_PER_TURN = 20
# A listener with this many unread events is disconnected. Its client resumes by its last event id.
MAX_BACKLOG = 1_000
# Cached types and correlation ids of messages.
MAX_KNOWN_MESSAGES = 20_000
MAX_HEADINGS = 1_000
# The tail may lag behind a long transaction; beyond this many an event may be sent twice.
MAX_ANNOUNCED = 100_000
BULK_STARTED, BULK_PROGRESS, BULK_ENDED = "bulk.started", "bulk.progress", "bulk.ended"
# The first event of every stream gives clients an id to resume from.
OPENED = "stream.opened"
LIVE = (
    CLAIMED, EXTENDED, "queue.changed", "queue.deleted", "scope.changed",
    "agent.failed", "agent.recovered", "anomaly.opened", "anomaly.resolved",
    BULK_STARTED, BULK_PROGRESS, BULK_ENDED, *LIVE_WAIT_KINDS, ACT,
)  # fmt: skip
KINDS = (PUBLISHED, *HISTORY_KINDS, HUMAN_OPENED, HUMAN_DECIDED, *LIVE)
encode = msgspec.json.Encoder().encode


class Event(Struct, frozen=True, omit_defaults=True):
    """Something that happened to a message, a queue or an agent, without bodies."""

    kind: str
    at: Time
    scope: str
    queue: str
    id: str | None = None
    type: str | None = None
    state: str | None = None
    attempts: int = 0
    consumer: str | None = None
    reason: str | None = None
    error: str | None = None
    correlation_id: str | None = None
    # Messages that a bulk action has changed. Set instead of an id if too many messages were
    # claimed at once to report each.
    count: int = 0
    # The person who decided a human step.
    by: str | None = None
    # Of an entry of the audit log: who did what to what.
    subject: str | None = None
    verb: str | None = None
    target: str | None = None
    detail: str | None = None
    request_id: str | None = None


class EncodedEvent(Struct, frozen=True, dict=True):
    """An event, its tenant, and the id to resume from after it.

    A live event has no cursor of its own: the hub sends it with the latest that is safe.
    """

    event: Event
    tenant: str
    cursor: str | None = None
    # May see it in addition to readers of its queue.
    audience: Audience | None = None
    # The entry of the audit log, which needs rights of its own.
    act: AuditEntry | None = None

    @cached_property
    def frame(self) -> bytes:
        """Returns the frame to send, which is the same for all listeners."""
        data = encode(self.event).decode()
        return make_frame(self.event.kind, data, self.cursor)


class Filter(Struct, frozen=True):
    """Selects events of a tenant; of these scopes, queues and kinds, if any; that match a node."""

    tenant: str
    scopes: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    # Called with a scope and a queue; the queue is * for events that concern no queue.
    allows: Callable[[str, str], bool] = lambda scope, queue: True
    node: Node | None = None
    sees: Callable[[str, Audience], bool] = lambda scope, audience: False
    sees_act: Callable[[AuditEntry], bool] = lambda act: False

    @property
    def wants_acts(self) -> bool:
        """The audit log is only sent to listeners that ask for it."""
        return ACT in self.kinds

    def matches(self, encoded: EncodedEvent) -> bool:
        event = encoded.event
        return (
            encoded.tenant == self.tenant
            and (not self.scopes or event.scope in self.scopes)
            and (not self.queues or event.queue in self.queues)
            and (not self.kinds or event.kind in self.kinds)
            and self.may_see(encoded)
            and (self.node is None or matches(self.node, make_candidate(event)))
        )

    def may_see(self, encoded: EncodedEvent) -> bool:
        event, audience = encoded.event, encoded.audience
        if encoded.act is not None:
            return self.wants_acts and self.sees_act(encoded.act)
        if self.allows(event.scope, event.queue or EVERY):
            return True
        return audience is not None and self.sees(event.scope, audience)


def make_candidate(event: Event) -> Candidate:
    """Returns the fields of an event that a filter tests."""
    return Candidate(
        state=None if event.state not in STATES else State(event.state),
        queue=event.queue or None,
        scope=event.scope or None,
        type=event.type,
        id=int(event.id) if event.id is not None and is_id(event.id) else None,
        correlation=event.correlation_id,
        consumer=event.consumer,
        reason=event.reason,
        error=event.error,
        attempts=event.attempts if event.id is not None else None,
    )


def do_nothing() -> None:
    pass


class EventListener:
    """Buffers events for one client. `lost` is set when the buffer is full."""

    def __init__(
        self, filter: Filter, wake: Callable[["EventListener"], None], cursor: str | None
    ) -> None:
        self.filter = filter
        # Where to resume if nothing was sent yet.
        self.cursor = cursor
        self.wake = wake
        self.unread: deque[bytes] = deque()
        self.news = asyncio.Event()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False

    def offer(self, encoded: EncodedEvent) -> None:
        if not self.lost.done() and self.filter.matches(encoded):
            self.push(encoded.frame)

    def push(self, frame: bytes) -> None:
        if len(self.unread) >= MAX_BACKLOG:
            self.unread.clear()
            self.lost.set_result(None)
            return
        if not self.unread:
            self.wake(self)
        self.unread.append(frame)

    async def read(self) -> bytes:
        """Waits for frames, and returns all of them."""
        await self.news.wait()
        self.news.clear()
        frames = b"".join(self.unread)
        self.unread.clear()
        return frames

    def close(self) -> None:
        self.closed = True
        self.news.set()


class Hub:
    """Distributes events of this process, and those of others that the tail reads."""

    def __init__(self) -> None:
        self.listeners: set[EventListener] = set()
        # Listeners with unread events that have not been woken yet.
        self.unwoken: deque[EventListener] = deque()
        self.awaited: dict[int, set[asyncio.Event]] = {}
        self.closed = False
        # Listeners were sent everything before it, so it is safe to resume from.
        self.cursor: str | None = None
        self.known: OrderedDict[int, tuple[str, str | None]] = OrderedDict()
        # Ids of messages whose publish was sent live. The tail reads them again.
        self.announced: set[int] = set()
        # Called when a listener arrives. The agents that read events sleep until then.
        self.wake_agents: Callable[[], None] = do_nothing

    @property
    def wanted(self) -> bool:
        return bool(self.listeners or self.awaited)

    def wants(self, kinds: Iterable[str]) -> bool:
        """True if a listener asked for one of these kinds."""
        asked = frozenset(kinds)
        return any(
            not listener.filter.kinds or asked & listener.filter.kinds
            for listener in self.listeners
        )

    @property
    def wants_acts(self) -> bool:
        return any(listener.filter.wants_acts for listener in self.listeners)

    def listen(self, filter: Filter) -> EventListener:
        listener = EventListener(filter, self.wake, self.cursor)
        if self.closed:
            listener.close()
        self.listeners.add(listener)
        self.wake_agents()
        return listener

    def leave(self, listener: EventListener) -> None:
        self.listeners.discard(listener)

    def send(self, events: Iterable[EncodedEvent]) -> None:
        for event in events:
            encoded = event if event.cursor else replace(event, cursor=self.cursor)
            for listener in self.listeners:
                listener.offer(encoded)

    def wake(self, listener: EventListener) -> None:
        if not self.unwoken:
            asyncio.get_running_loop().call_soon(self.wake_some)
        self.unwoken.append(listener)

    def wake_some(self) -> None:
        """Wakes listeners in portions, so that requests do not wait for all of them."""
        for _ in range(min(MAX_WOKEN_PER_TURN, len(self.unwoken))):
            self.unwoken.popleft().news.set()
        if self.unwoken:
            asyncio.get_running_loop().call_soon(self.wake_some)

    def send_keepalives(self) -> None:
        for listener in self.listeners:
            if not listener.unread:
                listener.push(KEEPALIVE)

    def expect(self, id: int) -> asyncio.Event:
        """Returns an event that is set when something happens to the message."""
        happened = asyncio.Event()
        self.awaited.setdefault(id, set()).add(happened)
        self.wake_agents()
        if self.closed:
            happened.set()
        return happened

    def forget(self, id: int, happened: asyncio.Event) -> None:
        self.awaited[id].discard(happened)
        if not self.awaited[id]:
            del self.awaited[id]

    def notify_ended(self, ids: Iterable[int]) -> None:
        for id in ids:
            for each in self.awaited.get(id, ()):
                each.set()

    def remember(self, id: int, type: str, correlation_id: str | None) -> None:
        self.known[id] = (type, correlation_id)
        if len(self.known) > MAX_KNOWN_MESSAGES:
            self.known.popitem(last=False)

    async def learn(self, store: Store, ids: Iterable[int]) -> None:
        """Reads the types and correlation ids of messages that are not known yet."""
        unknown = list(dict.fromkeys(id for id in ids if id not in self.known))
        for start in range(0, len(unknown), MAX_HEADINGS):
            found = await store.headings(unknown[start : start + MAX_HEADINGS])
            for id, heading in found.items():
                self.remember(id, heading.type, heading.correlation_id)

    def announce(self, encoded: EncodedEvent, id: int) -> None:
        """Sends the publish of a message of this process, unless the tail has already sent it."""
        if self.listeners and id not in self.known:
            if len(self.announced) >= MAX_ANNOUNCED:
                self.announced.clear()
            self.announced.add(id)
            self.send((encoded,))

    def is_news(self, event: Event) -> bool:
        """Returns whether the event was not announced when it was published."""
        if event.kind != PUBLISHED or event.id is None:
            return True
        id = int(event.id)
        announced = id in self.announced
        self.announced.discard(id)
        self.remember(id, event.type or "", event.correlation_id)
        return not announced

    def close(self) -> None:
        """Ends every event stream and every wait."""
        self.closed = True
        for listener in self.listeners:
            listener.close()
        self.notify_ended(list(self.awaited))


class EventKeepalive:
    """Sends keepalives, which also detect clients that have disconnected."""

    name = "event_keepalive"
    every = 15.0

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    async def tick(self) -> float:
        self.hub.send_keepalives()
        return self.every
