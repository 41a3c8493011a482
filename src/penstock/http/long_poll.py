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

    __slots__ = ("consumer", "future", "limit", "line", "number", "patient", "timer")

    def __init__(self, line: "WaitQueue", consumer: str, limit: int, patient: bool) -> None:
        self.line = line
        self.number = line.joined
        self.consumer = consumer
        self.limit = limit
        self.patient = patient
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
        self.answer(self.line.nothing)

    def leave(self) -> None:
        self.line.get_waiters(self.patient).pop(self.number, None)
        if self.timer is not None:
            self.timer.cancel()


class WaitQueue:
    """The claims with one key. Runs one claim of the store at a time, for the first waiters."""

    def __init__(self, wish: ClaimKey, broker: Broker) -> None:
        self.wish = wish
        self.broker = broker
        self.joined = 0
        # The store was asked for every waiter up to this number.
        self.looked = 0
        self.patients: OrderedDict[int, Waiter] = OrderedDict()
        self.others: OrderedDict[int, Waiter] = OrderedDict()
        self.nothing = ClaimResult([], {})
        self.serving: asyncio.Task[None] | None = None
        self.woken: asyncio.Future[None] | None = None

    @property
    def open(self) -> bool:
        return self.serving is not None and not self.serving.done()

    def get_waiters(self, patient: bool) -> OrderedDict[int, Waiter]:
        return self.patients if patient else self.others

    def join(self, consumer: str, limit: int, wait: float) -> Waiter:
        self.joined += 1
        waiter = Waiter(self, consumer, limit, wait > 0)
        self.get_waiters(waiter.patient)[waiter.number] = waiter
        if waiter.patient:
            waiter.timer = asyncio.get_running_loop().call_later(wait, waiter.give_up)
        else:
            # A patient waiter need not wake the loop: the earlier ones found nothing.
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
        for waiter in [*self.patients.values(), *self.others.values()]:
            waiter.fail(error)

    async def serve(self) -> None:
        """Serves until no waiter is left."""
        while self.patients or self.others:
            since = self.broker.wakes
            try:
                if not await self.look() and self.looked == self.joined and self.patients:
                    await self.pause(since)
            except PenstockError as error:
                self.fail(error)

    async def look(self) -> bool:
        """Claims once for the first waiters. True if there may be more messages."""
        group, joined = self.take_first_group(), self.joined
        wanted = sum(waiter.limit for waiter in group)
        taken = await self.claim(group[0].consumer, wanted)
        self.nothing = ClaimResult([], taken.queues)
        if left := hand_out(group, taken):
            await give_back(self.broker, left)
        if len(taken.messages) == wanted:
            return True
        self.looked = joined
        for waiter in [each for each in self.others.values() if each.number <= joined]:
            waiter.answer(self.nothing)
        return False

    def take_first_group(self) -> list[Waiter]:
        """Returns the waiters at the front that claim as the same consumer."""
        group: list[Waiter] = []
        wanted = 0
        for line in (self.patients, self.others):
            for waiter in line.values():
                wanted += waiter.limit
                if group and (waiter.consumer != group[0].consumer or wanted > MAX_CLAIM_BATCH):
                    return group
                group.append(waiter)
        return group

    async def claim(self, consumer: str, limit: int) -> ClaimResult:
        wish = self.wish
        return await self.broker.claim(
            *wish.wants,
            consumer=consumer,
            limit=limit,
            lease=wish.lease,
            begins=wish.begins,
            merge=wish.merge,
            scope=wish.scope,
            dead_of=wish.dead_of,
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
        wish = self.wish
        queues = [await self.broker.get_queue(name, scope=wish.scope) for name, _ in wish.wants]
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
        self.lines: dict[ClaimKey, WaitQueue] = {}
        self.closed = False

    @property
    def waiting(self) -> int:
        return sum(len(line.patients) for line in self.lines.values())

    def join(
        self, broker: Broker, wish: ClaimKey, consumer: str, limit: int, wait: float
    ) -> Waiter:
        wait = 0.0 if self.closed else min(wait, MAX_WAIT_S)
        line = self.lines.get(wish)
        if line is None:
            self.forget()
            line = self.lines[wish] = WaitQueue(wish, broker)
        return line.join(consumer, limit, wait)

    def forget(self) -> None:
        """Drops wait queues without waiters."""
        self.lines = {wish: line for wish, line in self.lines.items() if line.open}

    def wake(self) -> None:
        """Wakes all wait queues after a queue changed, since it may deliver now."""
        for line in self.lines.values():
            line.wake()

    def close(self) -> None:
        """Answers all waiters now. Later claims do not wait."""
        self.closed = True
        for line in self.lines.values():
            for waiter in list(line.patients.values()):
                waiter.give_up()
            line.wake()

    async def wait_until_drained(self) -> None:
        """Waits until messages being claimed are delivered or released."""
        if serving := [line.serving for line in self.lines.values() if line.serving is not None]:
            await asyncio.wait(serving)
