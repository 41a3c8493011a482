"""Runs a worker as a process: signals, registration, agents and shutdown."""

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from importlib.metadata import version

import structlog

from penstock.broker.interfaces.broker import BrokerInterface
from penstock.broker.liveness import HEARTBEAT_INTERVAL_S, is_gone
from penstock.errors import PenstockError, StoreError
from penstock.model.message import State
from penstock.model.queue import Queue
from penstock.model.store_types import WorkerInfo
from penstock.runner import Runner
from penstock.worker.handler import Handler
from penstock.worker.worker import Worker

log = structlog.get_logger()
POLL_INTERVAL_S, EMPTY_POLL_INTERVAL_S = 1.0, 0.2
PAGE_SIZE = 200
STOP_HINT = {"hint": "press Ctrl-C again to stop at once"}


class WorkerProcess:
    """Runs one worker until a signal, a stop request in the store, or (optionally) empty queues.

    With a `parent`, it also stops when that process exits.
    """

    def __init__(
        self,
        worker: Worker,
        agents: Runner,
        *,
        stop_when_empty: bool = False,
        parent: int | None = None,
    ) -> None:
        self.worker = worker
        worker.run_log.completions = True
        self.broker: BrokerInterface = worker.broker
        self.agents = agents
        self.stop_when_empty = stop_when_empty
        self.parent = parent
        self.stopped = asyncio.Event()
        self.signalled = False
        self.reason = ""

    async def run(self) -> None:
        names = tuple(dict.fromkeys(handler.queue for handler in self.worker.handlers))
        me = WorkerInfo(
            id=self.worker.identity,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=names,
            types=list_types(self.worker.handlers),
            slots=self.worker.options.concurrency,
            version=version("penstock"),
            scope=self.worker.scope,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.handle_signal, number)
        async with self.agents:
            await self.register(me)
            try:
                async with self.worker:
                    log.info("worker_started", worker=me.id, pid=me.pid, queues=", ".join(names))
                    await self.watch(me)
                    hint = STOP_HINT if self.reason == "SIGINT" else {}
                    log.info("worker_stopping", reason=self.reason, **self.worker.counts(), **hint)
            finally:
                await self.leave(me)
        counts = {"completed": self.worker.completed, "other": self.worker.settled}
        log.info("worker_stopped", **counts, lost=self.worker.lost)

    def handle_signal(self, number: int) -> None:
        """Stops gracefully on the first signal, and exits at once on the second."""
        if self.signalled:
            os._exit(128 + number)
        self.signalled = True
        self.stop(signal.Signals(number).name)

    def stop(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.stopped.set()

    async def register(self, me: WorkerInfo) -> None:
        """Registers the worker. A failure is not fatal: registration is informational."""
        try:
            await self.remove_gone_workers()
        except StoreError as error:
            self.broker.outages.report_failure("registration", error)
        await self.save_presence(me)

    async def leave(self, me: WorkerInfo) -> None:
        try:
            await self.broker.delete_worker(me.id)
        except StoreError as error:
            self.broker.outages.report_failure("registration", error)

    async def remove_gone_workers(self) -> None:
        """Deletes the registrations of workers that died."""
        now = await self.broker.now()
        for row in await self.broker.workers():
            if is_gone(row, now):
                await self.broker.delete_worker(row.id)

    async def watch(self, me: WorkerInfo) -> None:
        """Checks for a reason to stop, and renews the registration."""
        loop = asyncio.get_running_loop()
        said_at = loop.time()
        while not self.stopped.is_set():
            try:
                async with asyncio.timeout(
                    EMPTY_POLL_INTERVAL_S if self.stop_when_empty else POLL_INTERVAL_S
                ):
                    await self.stopped.wait()
            except TimeoutError:
                if loop.time() - said_at >= HEARTBEAT_INTERVAL_S:
                    said_at = loop.time()
                    await self.save_presence(me)
                await self.check_stop_requests(me)

    async def save_presence(self, me: WorkerInfo) -> None:
        try:
            await self.broker.save_worker(me)
        except StoreError as error:
            self.broker.outages.report_failure("registration", error)
        except PenstockError as error:
            log.error("worker_registration_failed", error=str(error))

    async def check_stop_requests(self, me: WorkerInfo) -> None:
        try:
            rows = await self.broker.workers()
            if any(row.id == me.id and row.stopping for row in rows):
                self.stop("stop requested")
            elif self.parent is not None and os.getppid() != self.parent:
                self.stop("its parent process exited")
            elif self.stop_when_empty and await self.is_empty():
                self.stop("its queues are empty")
            self.broker.outages.report_success("registration")
        except StoreError as error:
            self.broker.outages.report_failure("registration", error)
        except PenstockError as error:
            log.error("worker_stop_check_failed", error=str(error))

    async def is_empty(self) -> bool:
        """True if nothing is held, ready, claimed or due for retry. Paused queues are ignored.

        What the last run ended may have been awaited, so waiting messages are looked at first.
        """
        if self.worker.held or await self.broker.waits.resume_held():
            return False
        found = [await self.broker.get_queue_by_id(queue_id) for queue_id in self.worker.queues]
        queues = [queue for queue in found if queue.serves]
        for queue in queues:
            if not await self.is_queue_still(queue) or await self.has_retries(queue.name):
                return False
        # A retry may have become ready between the two queries.
        return all([await self.is_queue_still(queue) for queue in queues])

    async def is_queue_still(self, queue: Queue) -> bool:
        """True if none of its messages is ready or claimed."""
        ready = await self.broker.admin.find(
            queue.name, state=State.READY, limit=1, scope=self.worker.scope
        )
        if ready:
            return False
        depths = await self.broker.depths()
        return not any(depths.get((queue.id, place)) for place in ("ready", "lease"))

    async def has_retries(self, queue: str) -> bool:
        """True if a message that ran before is scheduled to run again."""
        before: int | None = None
        while True:
            page = await self.broker.admin.find(
                queue,
                state=State.SCHEDULED,
                before=before,
                limit=PAGE_SIZE,
                scope=self.worker.scope,
            )
            if any(record.attempts for record in page):
                return True
            if len(page) < PAGE_SIZE:
                return False
            before = page[-1].message.id


def list_types(handlers: Sequence[Handler]) -> dict[str, tuple[str, ...]]:
    """Returns the types of each queue, unless a handler of the queue takes all of them."""
    by_queue: dict[str, list[str | None]] = {}
    for handler in handlers:
        by_queue.setdefault(handler.queue, []).append(handler.type)
    return {
        queue: tuple(sorted(type_ for type_ in types if type_ is not None))
        for queue, types in by_queue.items()
        if None not in types
    }
