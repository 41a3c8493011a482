"""The executor of batch handlers. Each message of a batch is settled individually."""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Sequence
from math import inf

import structlog

from penstock.worker.ack_policy import TimedOut
from penstock.worker.context import Context
from penstock.worker.executors.base import (
    CANCEL_TIMEOUT_S,
    Load,
    ResultSink,
    Run,
    Task,
    list_contexts,
)
from penstock.worker.handler import Handler
from penstock.worker.tracebacks import format_coroutine

log = structlog.get_logger()


class BatchExecutor:
    """Runs one batch at a time, of the waiting messages up to the handler's batch size."""

    def __init__(self, handler: Handler, sink: ResultSink, grace: float) -> None:
        self.handler = handler
        self.capacity = handler.batch or 1
        self.sink = sink
        self.grace = grace
        self.low = 0
        self.load = Load()
        self.buffer: deque[Run] = deque()
        self.filled = asyncio.Event()
        self.batch: list[Context] = []
        self.began = 0.0
        self.until = inf
        self.late = False
        self.stopping = False
        self.runner: Task | None = None

    def start(self) -> None:
        self.late = False
        self.runner = asyncio.create_task(self.run())
        self.runner.add_done_callback(self.replace_runner)

    def replace_runner(self, runner: Task) -> None:
        """Replaces a task that failed because of a bug."""
        if not runner.cancelled() and (error := runner.exception()) is not None:
            log.error("executor_task_failed", exc_info=error)
            if not self.stopping and runner is self.runner:
                self.start()

    def put(self, runs: Sequence[Run]) -> None:
        self.buffer.extend(runs)
        self.load.accept(len(runs))
        self.filled.set()

    @property
    def waiting(self) -> int:
        return len(self.buffer)

    @property
    def running(self) -> int:
        return len(self.batch)

    def names(self) -> list[str]:
        return [self.handler.name] if self.batch else []

    @property
    def free(self) -> int:
        """The number of free slots; none while a batch runs."""
        return (0 if self.batch else self.capacity) - len(self.buffer)

    def take_back(self) -> list[Context]:
        waiting = list_contexts(self.buffer)
        self.buffer.clear()
        self.load.give_back(len(waiting))
        return waiting

    async def run(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        while not self.stopping:
            if not self.buffer:
                self.sink.notify_room()
                self.filled.clear()
                await self.filled.wait()
                continue
            if self.handler.batch_wait and not await self.fill():
                continue
            batch = self.batch = self.take()
            errors = await self.run_batch(me, batch)
            if self.sink.forked:
                os._exit(0)
            # The batch was abandoned, and another task took over.
            if self.batch is not batch:
                return
            if self.late:
                self.late = False
                me.uncancel()
            self.end(errors)
            await asyncio.sleep(0)

    async def fill(self) -> bool:
        """Waits for a full batch, at most `batch_wait` after the first message.

        Returns False if the messages were given back meanwhile.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.handler.batch_wait):
                while 0 < len(self.buffer) < self.capacity:
                    self.sink.notify_room()
                    self.filled.clear()
                    await self.filled.wait()
        return bool(self.buffer)

    def take(self) -> list[Context]:
        """Takes a batch. Its timeout is the shortest of the handler and the messages."""
        size = min(len(self.buffer), self.capacity)
        batch = [self.buffer.popleft()[1] for _ in range(size)]
        limits = [context.limit for context in batch if context.limit is not None]
        now = self.began = time.monotonic()
        self.until = now + min(limits, default=inf)
        for context in batch:
            context.started_at, context.until = now, self.until
        return batch

    async def run_batch(self, me: Task, batch: list[Context]) -> Sequence[BaseException | None]:
        try:
            return await self.handler.run_batch(batch)
        except BaseException as raised:
            if self.late:
                late = TimedOut("run exceeded its timeout").with_traceback(raised.__traceback__)
                return [late] * len(batch)
            if isinstance(raised, asyncio.CancelledError) and me.cancelling():
                raise
            return [raised] * len(batch)

    def end(self, errors: Sequence[BaseException | None]) -> None:
        batch, self.batch, self.until = self.batch, [], inf
        self.load.time_each([self.began] * len(batch))
        for context, error in zip(batch, errors, strict=True):
            self.load.end()
            self.sink.handle_end(self.handler, context, None, error)
        if len(self.buffer) <= self.low:
            self.sink.notify_room()

    def sweep(self, now: float) -> None:
        """Cancels a batch past its timeout, and abandons it after the grace period."""
        if self.runner is None or self.until > now:
            return
        if not self.late:
            self.late = True
            self.runner.cancel()
        elif self.until + self.grace <= now:
            log.error("run_abandoned", handler=self.handler.name, messages=len(self.batch))
            late = TimedOut("run exceeded its timeout and ignored its cancellation")
            late.report = format_coroutine(self.runner.get_coro())
            self.end([late] * len(self.batch))
            self.start()

    async def stop(self) -> list[Context]:
        self.stopping = True
        if self.runner is not None:
            self.runner.cancel()
            await asyncio.wait([self.runner], timeout=CANCEL_TIMEOUT_S)
        cut, self.batch = self.batch, []
        return cut
