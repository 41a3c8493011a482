"""Long polling of claims.

Claims with the same key wait in one queue and are served in order of arrival. One claim of the
store serves many of them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct

from penstock.broker.consume import MAX_WAIT_S
from penstock.broker.interfaces.broker import ClaimResult
from penstock.broker.local import Broker
from penstock.errors import PenstockError
from penstock.model.message import Leased, Release

# Most messages that one claim of the store takes for all waiters together.
MAX_CLAIM_BATCH = 500
# Wake-ups are hints. The store is polled at this interval without one.
POLL_INTERVAL_S = 1.0


class ClaimKey(Struct, frozen=True):
    """The parameters of a claim. Claims with equal keys share a wait queue."""

    tenant: str
    scope: str
    wants: tuple[tuple[str, tuple[str, ...]], ...]
    lease: float | None
    begins: bool
    merge: str | None
    # Queues whose dead letters `_dead_letter` delivers. None means all of the scope.
    dead_of: tuple[int, ...] | None = None


class Waiter:
    """One waiting claim. `future` holds its result."""

    __slots__ = ("consumer", "future", "limit", "number", "polls", "queue", "timer")

    def __init__(self, queue: "WaitQueue", consumer: str, limit: int, polls: bool) -> None:
        self.queue = queue
        self.number = queue.joined
        self.consumer = consumer
        self.limit = limit
        self.polls = polls
        self.future: asyncio.Future[ClaimResult] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None

    def answer(self, taken: ClaimResult) -> None:
        self.leave()
        if not self.future.done():
            self.future.set_result(taken)

    def fail(self, error: BaseException) -> None:
        self.leave()
        if not self.future.done():
            self.future.set_exception(error)

    def give_up(self) -> None:
        self.answer(self.queue.nothing)

    def leave(self) -> None:
        self.queue.get_waiters(self.polls).pop(self.number, None)
        if self.timer is not None:
            self.timer.cancel()


class WaitQueue:
    """The claims with one key. Runs one claim of the store at a time, for the first waiters."""

    def __init__(self, key: ClaimKey, broker: Broker) -> None:
        self.key = key
        self.broker = broker
        self.joined = 0
        # The store was asked for every waiter up to this number.
        self.asked = 0
        self.long_polls: OrderedDict[int, Waiter] = OrderedDict()
        self.immediate: OrderedDict[int, Waiter] = OrderedDict()
        self.nothing = ClaimResult([], {})
        self.serving: asyncio.Task[None] | None = None
        self.woken: asyncio.Future[None] | None = None

    @property
    def open(self) -> bool:
        return self.serving is not None and not self.serving.done()

    def get_waiters(self, polls: bool) -> OrderedDict[int, Waiter]:
        return self.long_polls if polls else self.immediate

    def join(self, consumer: str, limit: int, wait: float) -> Waiter:
        self.joined += 1
        waiter = Waiter(self, consumer, limit, wait > 0)
        self.get_waiters(waiter.polls)[waiter.number] = waiter
        if waiter.polls:
            waiter.timer = asyncio.get_running_loop().call_later(wait, waiter.give_up)
        else:
            # A long poll need not wake the loop: the earlier ones found nothing.
            self.wake()
        if not self.open:
            self.serving = asyncio.ensure_future(self.serve())
            self.serving.add_done_callback(self.end)
        return waiter

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)

    def end(self, serving: "asyncio.Task[None]") -> None:
        if not serving.cancelled() and (error := serving.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        for waiter in [*self.long_polls.values(), *self.immediate.values()]:
            waiter.fail(error)

    async def serve(self) -> None:
        """Serves until no waiter is left."""
        while self.long_polls or self.immediate:
            since = self.broker.wakes
            try:
                if not await self.claim_once() and self.asked == self.joined and self.long_polls:
                    await self.pause(since)
            except PenstockError as error:
                self.fail(error)

    async def claim_once(self) -> bool:
        """Claims once for the first waiters. True if there may be more messages."""
        group, joined = self.take_first_group(), self.joined
        wanted = sum(waiter.limit for waiter in group)
        taken = await self.claim(group[0].consumer, wanted)
        self.nothing = ClaimResult([], taken.queues)
        if left := hand_out(group, taken):
            await give_back(self.broker, left)
        if len(taken.messages) == wanted:
            return True
        self.asked = joined
        for waiter in [each for each in self.immediate.values() if each.number <= joined]:
            waiter.answer(self.nothing)
        return False

    def take_first_group(self) -> list[Waiter]:
        """Returns the waiters at the front that claim as the same consumer."""
        group: list[Waiter] = []
        wanted = 0
        for waiters in (self.long_polls, self.immediate):
            for waiter in waiters.values():
                wanted += waiter.limit
                if group and (waiter.consumer != group[0].consumer or wanted > MAX_CLAIM_BATCH):
                    return group
                group.append(waiter)
        return group

    async def claim(self, consumer: str, limit: int) -> ClaimResult:
        key = self.key
        return await self.broker.claim(
            *key.wants,
            consumer=consumer,
            limit=limit,
            lease=key.lease,
            begins=key.begins,
            merge=key.merge,
            scope=key.scope,
            dead_of=key.dead_of,
        )

    async def pause(self, since: int) -> None:
        """Waits until there may be work, or a claim without a wait arrives."""
        self.woken = asyncio.get_running_loop().create_future()
        ready = asyncio.ensure_future(self.wait_ready(since))
        try:
            await asyncio.wait({ready, self.woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.woken = None
            if not ready.done():
                ready.cancel()
                await asyncio.wait({ready})
        if not ready.cancelled():
            ready.result()

    async def wait_ready(self, since: int) -> None:
        key = self.key
        queues = [await self.broker.get_queue(name, scope=key.scope) for name, _ in key.wants]
        serving = [queue.id for queue in queues if queue.serves]
        await self.broker.wait_ready(serving, POLL_INTERVAL_S, since)


def hand_out(group: Sequence[Waiter], taken: ClaimResult) -> list[Leased]:
    """Gives each waiter its share in turn. Returns messages whose waiters have left."""
    given = 0
    for waiter in group:
        share = taken.messages[given : given + waiter.limit]
        if share and not waiter.future.done():
            waiter.answer(ClaimResult(share, taken.queues))
            given += len(share)
    return taken.messages[given:]


async def give_back(broker: Broker, messages: Sequence[Leased]) -> None:
    await broker.settle_many([(message, Release()) for message in messages])


class LongPoller:
    """All wait queues of a server."""

    def __init__(self) -> None:
        self.queues: dict[ClaimKey, WaitQueue] = {}
        self.closed = False

    @property
    def waiting(self) -> int:
        return sum(len(queue.long_polls) for queue in self.queues.values())

    def join(self, broker: Broker, key: ClaimKey, consumer: str, limit: int, wait: float) -> Waiter:
        wait = 0.0 if self.closed else min(wait, MAX_WAIT_S)
        queue = self.queues.get(key)
        if queue is None:
            self.forget()
            queue = self.queues[key] = WaitQueue(key, broker)
        return queue.join(consumer, limit, wait)

    def forget(self) -> None:
        """Drops wait queues without waiters."""
        self.queues = {key: queue for key, queue in self.queues.items() if queue.open}

    def wake(self) -> None:
        """Wakes all wait queues after a queue changed, since it may deliver now."""
        for queue in self.queues.values():
            queue.wake()

    def close(self) -> None:
        """Answers all waiters now. Later claims do not wait."""
        self.closed = True
        for queue in self.queues.values():
            for waiter in list(queue.long_polls.values()):
                waiter.give_up()
            queue.wake()

    async def wait_until_drained(self) -> None:
        """Waits until messages being claimed are delivered or released."""
        if serving := [
            queue.serving for queue in self.queues.values() if queue.serving is not None
        ]:
            await asyncio.wait(serving)
