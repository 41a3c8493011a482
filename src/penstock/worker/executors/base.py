"""The executor protocol, and the executor of coroutines on the event loop."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Protocol, TypeAlias

import structlog

from penstock.worker.ack_policy import TimedOut
from penstock.worker.context import Context
from penstock.worker.handler import Handler
from penstock.worker.job_logging import JobLogFilter, running
from penstock.worker.tracebacks import format_coroutine

log = structlog.get_logger()
Run: TypeAlias = tuple[Handler, Context]
Task: TypeAlias = "asyncio.Task[None]"

# Handlers that never suspend must not starve other tasks on the loop.
YIELD_EVERY = 64
YIELD_AFTER_S = 0.005
# How long a cancelled run may take to end.
CANCEL_TIMEOUT_S = 2.0


class ResultSink(Protocol):
    """Receives the results of an executor."""

    # A handler forked this process: it must not continue as a worker.
    forked: bool

    def handle_end(
        self, handler: Handler, context: Context, result: bytes | None, error: BaseException | None
    ) -> None: ...

    def notify_room(self) -> None:
        """Reports that an executor has fewer messages waiting than its low mark."""


class Load:
    """Counts accepted and ended runs of an executor. Only the loop's thread writes it."""

    __slots__ = ("accepted", "busy_seconds", "busy_since", "ended", "run_seconds", "timed")

    def __init__(self) -> None:
        self.accepted = self.ended = 0
        # The number of timed runs, and their total duration.
        self.timed = 0
        self.run_seconds = 0.0
        # The total time with work to do, up to the last idle moment.
        self.busy_seconds = 0.0
        self.busy_since = inf

    @property
    def held(self) -> int:
        return self.accepted - self.ended

    def busy(self, now: float) -> float:
        """Returns the total seconds with work to do."""
        return self.busy_seconds + max(0.0, now - self.busy_since)

    def accept(self, count: int) -> None:
        if self.accepted == self.ended:
            self.busy_since = time.monotonic()
        self.accepted += count

    def give_back(self, count: int) -> None:
        self.accepted -= count
        self.note_rest()

    def end(self, runs: int = 1, seconds: float | None = None) -> None:
        """Counts runs that ended, with the time they took if it is known."""
        self.ended += runs
        if seconds is not None and runs:
            self.timed += runs
            self.run_seconds += seconds
        if self.accepted == self.ended:
            self.note_rest()

    def note_rest(self) -> None:
        if self.accepted == self.ended:
            self.busy_seconds = self.busy(time.monotonic())
            self.busy_since = inf

    def time_each(self, begins: Sequence[float]) -> None:
        """Runs that began at these moments have ended by now, side by side."""
        if begins:
            self.timed += len(begins)
            self.run_seconds += len(begins) * time.monotonic() - sum(begins)


class Executor(Protocol):
    """Queues messages and runs their handlers, without a task or thread hop per message."""

    # How many run at once, and the number of waiting messages at which it asks for more.
    capacity: int
    low: int
    load: Load

    def start(self) -> None: ...

    def put(self, runs: Sequence[Run]) -> None: ...

    @property
    def waiting(self) -> int:
        """The number of messages that have not started."""

    @property
    def running(self) -> int: ...

    def names(self) -> list[str]:
        """Returns the names of the running handlers. May be called from any thread."""

    @property
    def free(self) -> int:
        """The number of free slots, or below 0 the number of messages that wait for one."""

    def take_back(self) -> list[Context]:
        """Removes and returns all messages that have not started."""

    def sweep(self, now: float) -> None:
        """Ends runs that exceeded their timeout."""

    async def stop(self) -> list[Context]:
        """Stops all runs. Returns those that were cut off, which report no result."""


class AsyncExecutor:
    """Runs coroutine handlers in a fixed number of tasks."""

    def __init__(self, concurrency: int, sink: ResultSink, grace: float) -> None:
        self.capacity = concurrency
        self.sink = sink
        self.grace = grace
        self.low = 0
        self.load = Load()
        self.buffer: deque[Run] = deque()
        self.work = asyncio.Semaphore(0)
        self.idle = 0
        self.stopping = False
        self.active: dict[Task, Run] = {}
        self.runners: set[Task] = set()
        # Tasks that were cancelled because their run exceeded its timeout.
        self.late: set[Task] = set()

    def start(self) -> None:
        for _ in range(self.capacity):
            self.spawn()

    def spawn(self) -> None:
        runner = asyncio.create_task(self.run())
        self.runners.add(runner)
        runner.add_done_callback(self.replace_runner)

    def replace_runner(self, runner: Task) -> None:
        """Replaces a task that failed because of a bug."""
        self.runners.discard(runner)
        if not runner.cancelled() and (error := runner.exception()) is not None:
            log.error("executor_task_failed", exc_info=error)
            if not self.stopping:
                self.spawn()

    def put(self, runs: Sequence[Run]) -> None:
        self.buffer.extend(runs)
        self.load.accept(len(runs))
        for _ in range(min(len(runs), self.idle)):
            self.work.release()

    @property
    def waiting(self) -> int:
        return len(self.buffer)

    @property
    def running(self) -> int:
        return len(self.active)

    def names(self) -> list[str]:
        return [handler.name for handler, _ in self.active.copy().values()]

    @property
    def free(self) -> int:
        return self.capacity - len(self.buffer) - len(self.active)

    def take_back(self) -> list[Context]:
        waiting = list_contexts(self.buffer)
        self.buffer.clear()
        self.load.give_back(len(waiting))
        return waiting

    async def run(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        buffer, active, sink, goes_on, runs = self.buffer, self.active, self.sink, True, 0
        monotonic = time.monotonic
        # A run begins when the last one ended, unless the task was suspended in between.
        now = since = monotonic()
        while goes_on:
            if not buffer:
                self.load.end(runs, now - since)
                goes_on = await self.wait()
                runs, now = 0, monotonic()
                since = now
                continue
            active[me] = handler, context = buffer.popleft()
            if len(buffer) == self.low:
                sink.notify_room()
            value: Any = None
            error: BaseException | None = None
            context.started_at = now
            if context.limit is not None or JobLogFilter.in_use:
                self.prepare_run(context)
            try:
                value = await handler.begin(context)
                value = handler.keep(value) if value is not None or handler.must_return else None
            except BaseException as raised:  # noqa: BLE001 - it fails the run, not the worker
                value, error = None, self.translate_error(me, raised)
            now = context.ended_at = monotonic()
            if self.late or self.stopping or sink.forked:
                goes_on = self.finish_last_run(me, value, error)
            else:
                del active[me]
                sink.handle_end(handler, context, value, error)
            runs += 1
            if goes_on and (runs == YIELD_EVERY or now - since > YIELD_AFTER_S):
                self.load.end(runs, now - since)
                await asyncio.sleep(0)
                runs, now = 0, monotonic()
                since = now

    def prepare_run(self, context: Context) -> None:
        """Sets the deadline of the run, and the job of its log records."""
        running.set(context)
        if context.limit is not None:
            context.until = context.started_at + context.limit

    async def wait(self) -> bool:
        self.sink.notify_room()
        self.idle += 1
        try:
            await self.work.acquire()
        finally:
            self.idle -= 1
        return not self.stopping

    def translate_error(self, me: Task, raised: BaseException) -> BaseException:
        """Returns the error of the run. Re-raises a cancellation of the task itself."""
        if me in self.late:
            return TimedOut("run exceeded its timeout").with_traceback(raised.__traceback__)
        if isinstance(raised, asyncio.CancelledError) and me.cancelling():
            raise raised
        return raised

    def finish_last_run(self, me: Task, value: bytes | None, error: BaseException | None) -> bool:
        """Reports the result of a run that may be the last one of its task.

        Returns False if it is: the run was abandoned before, or the executor stops.
        """
        if self.sink.forked:
            os._exit(0)
        if me in self.late:
            self.late.discard(me)
            me.uncancel()
        run = self.active.pop(me, None)
        if run is None:
            return False
        self.sink.handle_end(*run, value, error)
        return not self.stopping

    def sweep(self, now: float) -> None:
        """Cancels runs past their timeout, and abandons them after the grace period."""
        for runner, (handler, context) in list(self.active.items()):
            if context.until <= now and runner not in self.late:
                self.late.add(runner)
                runner.cancel()
            elif context.until + self.grace <= now:
                del self.active[runner]
                self.load.end()
                log.error("run_abandoned", id=context.id, handler=handler.name)
                late = TimedOut("run exceeded its timeout and ignored its cancellation")
                late.report = format_coroutine(runner.get_coro())
                self.sink.handle_end(handler, context, None, late)
                self.spawn()

    async def stop(self) -> list[Context]:
        self.stopping = True
        for runner in self.runners:
            runner.cancel()
        if self.runners:
            await asyncio.wait(list(self.runners), timeout=CANCEL_TIMEOUT_S)
        cut = list_contexts(self.active.values())
        self.active.clear()
        return cut


def list_contexts(runs: Iterable[Run]) -> list[Context]:
    return [context for _, context in runs]
