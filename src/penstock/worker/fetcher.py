"""Claims messages for free slots, and prefetches while runs are short."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

import structlog

from penstock.broker.consume import MAX_CLAIM_QUEUES
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.errors import StoreError
from penstock.model.message import Leased
from penstock.retry_policies import LOOP_RETRY_DELAY_S
from penstock.worker.executors.base import Executor
from penstock.worker.options import WorkerOptions
from penstock.worker.prefetch import Prefetch, RunRate
from penstock.worker.quarantine import Quarantine

log = structlog.get_logger()
# Longer than the poll interval of other workers, so that they can claim first.
IDLE_PAUSE_S = 1.25


class Fetcher:
    """Feeds executors from queues. It never cancels a claim: its messages would be lost."""

    def __init__(
        self,
        broker: BrokerInterface,
        queues: Sequence[str],
        lanes: Sequence[Executor],
        options: WorkerOptions,
        consumer: str,
        *,
        scope: str,
        suspects: Quarantine,
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
        self.slots = sum(lane.capacity for lane in lanes)
        self.prefetch = Prefetch(self.slots, options.horizon, options.max_prefetch)
        self.turn = 0
        self.paused_until = 0.0
        # Executors that released messages: until then, slots of others are not claimed for.
        self.crowded: Collection[Executor] = ()
        self.widening: asyncio.TimerHandle | None = None
        self.stopping = self.resting = False
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        self.task = asyncio.current_task()
        while not self.stopping:
            try:
                await self.step()
            except StoreError as error:
                self.broker.outages.report_failure("fetch", error)
                await self.sleep_idle(asyncio.sleep(LOOP_RETRY_DELAY_S))
            except Exception as error:  # noqa: BLE001 - the fetch loop must not end
                log.error("fetch_failed", queues=self.queues, error=repr(error))
                await self.sleep_idle(asyncio.sleep(LOOP_RETRY_DELAY_S))

    def stop(self) -> None:
        """Stops after the claim in flight, or at once if there is none."""
        self.stopping = True
        if self.resting and self.task is not None:
            self.task.cancel()

    async def sleep_idle(self, wait: Coroutine[Any, Any, object]) -> None:
        if self.stopping:
            wait.close()
            return
        self.resting = True
        try:
            await wait
        finally:
            self.resting = False

    async def step(self) -> None:
        await self.pause()
        self.adapt_target()
        limit = self.limit()
        if limit <= 0:
            self.room.clear()
            await self.sleep_idle(self.room.wait())
            return
        wakes = self.broker.wakes
        got = await self.claim(limit)
        if got == limit:
            if self.options.min_interval:
                await self.sleep_idle(asyncio.sleep(self.options.min_interval))
        else:
            await self.sleep_idle(self.wait_for_work(wakes))

    async def pause(self) -> None:
        left = self.paused_until - asyncio.get_running_loop().time()
        if left > 0:
            await self.sleep_idle(asyncio.sleep(left))

    def stop_prefetch(self, crowded: Mapping[Executor, float]) -> None:
        """Stops prefetching, and pauses so that another worker can claim released messages."""
        self.prefetch.stop()
        loop = asyncio.get_running_loop()
        if self.free > 0:
            self.paused_until = loop.time() + IDLE_PAUSE_S
            self.room.set()
        if crowded:
            self.widen()
            self.crowded = crowded.keys()
            self.widening = loop.call_later(max(crowded.values()), self.widen)

    def widen(self) -> None:
        """Claims for the slots of all executors again."""
        self.crowded = ()
        if self.widening is not None:
            self.widening.cancel()
        self.room.set()

    def adapt_target(self) -> None:
        """Updates the prefetch target. Executors ask for more below half of it."""
        now, loads = time.monotonic(), [lane.load for lane in self.lanes]
        pace = RunRate(
            sum(load.timed for load in loads),
            sum(load.run_seconds for load in loads),
            sum(load.busy(now) for load in loads),
        )
        self.prefetch.adapt(pace)
        for lane in self.lanes:
            lane.low = self.prefetch.ahead // 2

    @property
    def free(self) -> int:
        """The number of free slots, or below 0 the number of messages that wait for one."""
        lanes = self.crowded or self.lanes
        return sum(lane.free for lane in lanes) - self.suspects.count_starting(self.lanes)

    def limit(self) -> int:
        """Returns how many messages to claim now. Waiting suspects take no slot."""
        suspects, options = self.suspects.count_waiting(self.lanes), self.options
        unstarted = sum(lane.waiting for lane in self.lanes) + suspects
        free, ahead = self.free, self.prefetch.ahead
        if suspects:
            wanted = min(free, self.slots - suspects)
        else:
            wanted = max(free, 0) + (ahead if unstarted <= ahead // 2 else 0)
        if options.prefetch is not None:
            wanted = min(wanted, free + options.prefetch)
        return min(wanted, options.fetch_batch_size, options.max_unstarted - unstarted)

    async def claim(self, limit: int) -> int:
        """Splits the queues over several claims if needed, and rotates which come first."""
        step = MAX_CLAIM_QUEUES
        rounds = [self.queues[at : at + step] for at in range(0, len(self.queues), step)]
        self.turn = (self.turn + 1) % len(rounds)
        got = 0
        for names in rounds[self.turn :] + rounds[: self.turn]:
            if got < limit and not self.stopping:
                got += await self.claim_from(names, limit - got)
        return got

    async def claim_from(self, names: Sequence[str], limit: int) -> int:
        broker = self.broker
        queues = [await broker.get_queue(name, scope=self.scope) for name in names]
        lease = self.options.lease or min(queue.settings.lease for queue in queues)
        taken = await broker.claim(
            *names, consumer=self.consumer, limit=limit, lease=lease, begins=True, scope=self.scope
        )
        broker.outages.report_success("fetch")
        if taken.messages:
            self.take(taken.messages, lease)
        return len(taken.messages)

    async def wait_for_work(self, wakes: int) -> None:
        """Waits for a notification since `wakes`, at most for the poll interval."""
        broker, loop = self.broker, asyncio.get_running_loop()
        queues = [await broker.get_queue(name, scope=self.scope) for name in self.queues]
        ids, longest = [queue.id for queue in queues], self.options.max_interval
        until = loop.time() + min(queue.settings.poll_interval or longest for queue in queues)
        while broker.wakes == wakes and (left := until - loop.time()) > 0:
            await broker.wait_ready(ids, left, wakes)
