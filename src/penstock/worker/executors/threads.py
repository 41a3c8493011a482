"""The thread executor: threads take messages from a queue and report results in bulk."""

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import TypeAlias

import structlog

from penstock.worker.ack_policy import TimedOut
from penstock.worker.context import Context
from penstock.worker.executors.base import Load, ResultSink, Run, list_contexts
from penstock.worker.handler import Handler
from penstock.worker.job_logging import running
from penstock.worker.tracebacks import format_thread

log = structlog.get_logger()
# When a run began, and its result.
Ended: TypeAlias = tuple[float, tuple[Handler, Context, bytes | None, BaseException | None]]


class ThreadExecutor:
    """Runs handlers in a bounded number of threads."""

    def __init__(self, concurrency: int, sink: ResultSink) -> None:
        self.capacity = concurrency
        self.sink = sink
        self.low = 0
        self.load = Load()
        self.loop = asyncio.get_running_loop()
        # None ends a thread.
        self.buffer: SimpleQueue[Run | None] = SimpleQueue()
        self.active: dict[int, Run] = {}
        self.finished: deque[Ended] = deque()
        self.collecting = False
        self.spawned = self.given_up = 0

    def start(self) -> None:
        """Does nothing: threads are started when there is work for them."""

    def spawn(self) -> None:
        self.spawned += 1
        name = thread_name(self.spawned)
        threading.Thread(target=self.run, args=(self.spawned,), name=name, daemon=True).start()

    def put(self, runs: Sequence[Run]) -> None:
        self.load.accept(len(runs))
        for run in runs:
            self.buffer.put(run)
        wanted = min(self.capacity, len(self.active) + self.buffer.qsize())
        while self.spawned - self.given_up < wanted:
            self.spawn()

    @property
    def waiting(self) -> int:
        return self.buffer.qsize()

    @property
    def running(self) -> int:
        return len(self.active) + len(self.finished)

    def names(self) -> list[str]:
        """Includes runs whose end the loop has not collected yet."""
        ended = [handler for _, (handler, *_) in self.finished.copy()]
        running = [handler for handler, _ in self.active.copy().values()]
        return [handler.name for handler in ended + running]

    @property
    def free(self) -> int:
        return self.capacity - self.load.held

    def take_back(self) -> list[Context]:
        back: list[Run] = []
        with contextlib.suppress(Empty):
            while (run := self.buffer.get_nowait()) is not None:
                back.append(run)
        self.load.give_back(len(back))
        return list_contexts(back)

    def run(self, me: int) -> None:
        while (run := self.buffer.get()) is not None:
            self.active[me] = run
            if self.buffer.qsize() == self.low:
                self.schedule_collect()
            handler, context = run
            result: bytes | None = None
            error: BaseException | None = None
            began = context.started_at = time.monotonic()
            if context.limit is not None:
                context.until = began + context.limit
            running.set(context)
            try:
                if handler.admit(context):
                    result = self.call(me, handler, context)
            except BaseException as raised:  # noqa: BLE001 - it fails the run, not the worker
                error = raised
            if self.sink.forked:
                os._exit(0)
            # The run was abandoned, and another thread took over.
            if self.active.pop(me, None) is None:
                return
            self.finished.append((began, (handler, context, result, error)))
            # An idle thread must not keep the last message alive.
            del run, handler, context, result, error
            self.schedule_collect()

    def call(self, me: int, handler: Handler, context: Context) -> bytes | None:
        return handler.run_in_thread(context)

    def schedule_collect(self) -> None:
        """Schedules one call on the loop for all runs that end meanwhile."""
        if not self.collecting:
            self.collecting = True
            # The loop may already be closed.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.collect)

    def collect(self) -> None:
        # Cleared before draining: runs that end from here on schedule another call.
        self.collecting = False
        begins: list[float] = []
        while self.finished:
            began, end = self.finished.popleft()
            begins.append(began)
            self.load.end()
            self.sink.handle_end(*end)
        self.load.time_each(begins)
        if self.waiting <= self.low:
            self.sink.notify_room()

    def sweep(self, now: float) -> None:
        """Abandons runs past their timeout. A thread cannot be stopped, so another replaces it."""
        for me, (handler, context) in self.active.copy().items():
            if context.until <= now and self.active.pop(me, None) is not None:
                log.warning("thread_abandoned", id=context.id, handler=handler.name)
                late = TimedOut("run exceeded its timeout; its thread is still running")
                late.report = format_thread(thread_name(me))
                self.load.end()
                self.sink.handle_end(handler, context, None, late)
                self.given_up += 1
                self.spawn()
                self.sink.notify_room()

    async def stop(self) -> list[Context]:
        cut = [self.active.pop(me, None) for me in list(self.active)]
        for _ in range(self.spawned):
            self.buffer.put(None)
        self.collect()
        return list_contexts(run for run in cut if run is not None)


def thread_name(number: int) -> str:
    return f"penstock-handler-{number}"
