"""Claims ahead of need: about a tenth of a second of work, never more than the bound."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from penstock.broker import Broker
from penstock.errors import StoreError
from penstock.message import Leased
from penstock.queue import Queue
from penstock.worker.lanes import Lane
from penstock.worker.options import WorkerOptions

log = structlog.get_logger()
AFTER_ERROR = 1.0


class Fetch:
    """Feeds some lanes from some queues. A claim under way is never cancelled: it would be lost."""

    def __init__(
        self,
        broker: Broker,
        queues: Sequence[str],
        lanes: Sequence[Lane],
        options: WorkerOptions,
        consumer: str,
        *,
        scope: str,
        suspects: Callable[[], int],
        take: Callable[[list[Leased], float], None],
    ) -> None:
        self.broker = broker
        self.queues = queues
        self.lanes = lanes
        self.options = options
        self.consumer = consumer
        self.scope = scope
        self.suspects = suspects
        self.take = take
        self.room = asyncio.Event()
        self.least = min(options.most, 2 * sum(lane.appetite for lane in lanes))
        self.taken = self.seen = 0
        self.seen_at = 0.0
        self.stopping = self.resting = False
        self.task: asyncio.Task[None] | None = None
        self.wish(self.least)

    def wish(self, want: int) -> None:
        """Refilled below half: the claim overlaps the rest."""
        self.want = want
        for lane in self.lanes:
            lane.low = want // 2

    @property
    def unstarted(self) -> int:
        return sum(lane.waiting for lane in self.lanes) + self.suspects()

    async def run(self) -> None:
        self.task = asyncio.current_task()
        while not self.stopping:
            try:
                await self.step()
            except StoreError as error:
                self.broker.outages.report_failure("fetch", error)
                await self.rest(asyncio.sleep(AFTER_ERROR))
            except Exception as error:  # noqa: BLE001 - whatever it was, it must not end here
                log.error("fetch_failed", queues=self.queues, error=repr(error))
                await self.rest(asyncio.sleep(AFTER_ERROR))

    def stop(self) -> None:
        """Ends after the claim that is under way, or at once if there is none."""
        self.stopping = True
        if self.resting and self.task is not None:
            self.task.cancel()

    async def rest(self, wait: Coroutine[Any, Any, object]) -> None:
        if self.stopping:
            wait.close()
            return
        self.resting = True
        try:
            await wait
        finally:
            self.resting = False

    async def step(self) -> None:
        unstarted = self.unstarted
        if unstarted > self.want // 2:
            self.room.clear()
            await self.rest(self.room.wait())
            return
        wakes = self.broker.store.wakes
        limit = min(self.want, self.options.fetch_batch_size, self.options.most - unstarted)
        got = await self.claim(limit)
        if got == limit:
            if self.options.min_interval:
                await self.rest(asyncio.sleep(self.options.min_interval))
        else:
            await self.rest(self.quiet(wakes))

    async def claim(self, limit: int) -> int:
        queues = [await self.queue(name) for name in self.queues]
        lease = self.options.lease or min(queue.settings.lease for queue in queues)
        taken = await self.broker.claim(
            *self.queues,
            consumer=self.consumer,
            limit=limit,
            lease=lease,
            begins=True,
            scope=self.scope,
        )
        self.broker.outages.report_success("fetch")
        got = len(taken.messages)
        if got:
            self.adapt(full=got == limit)
            self.taken += got
            self.take(taken.messages, lease)
        return got

    async def queue(self, name: str) -> Queue:
        """Its settings may have changed: what is claimed must be renewed in time."""
        directory, tenant = self.broker.directory, self.broker.tenant
        cached = directory.cached(tenant, self.scope, name)
        return cached or await directory.named(tenant, self.scope, name)

    async def quiet(self, wakes: int) -> None:
        """Until there may be work: something came since `wakes`, or the longest interval passed."""
        store, loop = self.broker.store, asyncio.get_running_loop()
        ids = [(await self.queue(name)).id for name in self.queues]
        until = loop.time() + self.options.max_interval
        while store.wakes == wakes and (left := until - loop.time()) > 0:
            await store.wait_ready(ids, left, wakes)

    def adapt(self, *, full: bool) -> None:
        """By the rate of the last moments; it grows by doubling and shrinks at once."""
        now, unstarted = asyncio.get_running_loop().time(), self.unstarted
        started = self.taken - unstarted
        rate = (started - self.seen) / max(now - self.seen_at, 1e-3)
        if now - self.seen_at > self.options.horizon:
            self.seen_at, self.seen = now, started
        starved = full and not unstarted
        target = max(self.least, int(rate * self.options.horizon), 2 * self.want if starved else 0)
        self.wish(min(self.options.most, target, 2 * self.want))
