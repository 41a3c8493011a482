"""Renews leases in a separate thread, so that a busy event loop does not stop it.

A handler that holds the GIL stops every thread; then the standby process renews the leases.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from math import inf

import structlog

from penstock.broker.interfaces.broker import BrokerInterface
from penstock.errors import StoreError
from penstock.model.message import Flag, Leased
from penstock.model.store_types import Answer, AnswerKind, Extension, Lock, Mark
from penstock.outage import Outages
from penstock.retry_policies import LEASE_RETRY_DELAY_S
from penstock.worker.context import Context
from penstock.worker.standby import Standby

log = structlog.get_logger()
# Cancel requests must be noticed long before the next renewal.
CHECK_INTERVAL_S = 1.0


class Heartbeat:
    """Renews each lease after a third of it. Runs past timeout and grace are not renewed."""

    def __init__(
        self,
        held: dict[int, Context],
        lost: Callable[[Context], None],
        grace: float,
        outages: Outages,
        standby: Standby | None = None,
    ) -> None:
        self.standby = standby
        self.held = held
        self.lost = lost
        self.grace = grace
        self.outages = outages
        self.worker_loop = asyncio.get_running_loop()
        self.thread: threading.Thread | None = None
        self.stopping = False
        # The loop of the heartbeat thread, if there is one.
        self.loop = self.worker_loop
        self.nudged = asyncio.Event()
        self.asleep_until = 0.0
        # Contexts that were held at the last check.
        self.seen: dict[int, Context] = {}
        self.next_check_at = 0.0

    def watch(self, renew_at: float) -> None:
        """Wakes the heartbeat in time for a renewal at `renew_at`."""
        if renew_at < self.asleep_until:
            self.wake()

    def prepare(self, lease: float) -> None:
        """Prepares for messages with this lease or a longer one."""
        if self.standby is not None:
            self.standby.prepare(lease)

    def report_claimed(self, deliveries: Sequence[Leased], lease: float, *, plain: bool) -> None:
        """Reports claimed messages to the standby, before any of them runs."""
        if self.standby is not None:
            self.standby.report_claimed(deliveries, lease, plain=plain)

    def wake(self) -> None:
        # The loop may already be closed.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.nudged.set)

    async def run(self, broker: BrokerInterface) -> None:
        while not self.stopping:
            try:
                await self.renew_due(broker)
                await self.check_leases(broker)
            except StoreError as error:
                self.outages.report_failure("heartbeat", error)
            except Exception as error:  # noqa: BLE001 - the heartbeat must continue
                log.error("heartbeat_failed", error=repr(error))
            await self.sleep()

    async def sleep(self) -> None:
        """Sleeps until the next renewal, or until `watch` reports an earlier one."""
        self.nudged.clear()
        self.asleep_until = inf
        due = [context.renew_at for context in self.held.copy().values() if not context.lost]
        self.asleep_until = min(*due, self.next_check_at) if due else inf
        if self.stopping:
            return
        wait = self.asleep_until - time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if wait == inf else max(0.0, wait)):
                await self.nudged.wait()

    async def renew_due(self, broker: BrokerInterface) -> None:
        now = time.monotonic()
        due = [context for context in self.held.copy().values() if context.renew_at <= now]
        for context in due:
            late = context.until + self.grace <= now
            context.renew_at = inf if context.lost or late else now + context.lease / 3
        due = [context for context in due if context.renew_at < inf]
        if due:
            await self.renew(broker, due)

    async def check_leases(self, broker: BrokerInterface) -> None:
        """Checks once a second for cancelled and lost leases among those held for longer.

        They are renewed at once, and the answer to the renewal says which it is.
        """
        now = time.monotonic()
        if now < self.next_check_at:
            return
        self.next_check_at, before, self.seen = now + CHECK_INTERVAL_S, self.seen, self.held.copy()
        long = [
            each for id, each in self.seen.items() if before.get(id) is each and is_watched(each)
        ]
        if not long:
            return
        await self.mark_begun(broker, [each for each in long if each.started_at and not each.begun])
        leases = await broker.leases([Lock(each.id, each.fence) for each in long])
        for context, lease in zip(long, leases, strict=True):
            if lease is None or lease.flags & Flag.CANCEL_REQUESTED:
                context.renew_at = now

    async def mark_begun(self, broker: BrokerInterface, contexts: list[Context]) -> None:
        """Records that runs began. Runs shorter than a second cost no write."""
        if contexts:
            await broker.mark_many([Mark(each.id, each.fence, begin=True) for each in contexts])
            for context in contexts:
                context.begun = True

    async def renew(self, broker: BrokerInterface, due: list[Context]) -> None:
        items = [Extension(context.id, context.fence, context.lease) for context in due]
        try:
            answers = await broker.extend_many(items)
        except BaseException:
            for context in due:
                context.renew_at = time.monotonic() + min(LEASE_RETRY_DELAY_S, context.lease / 6)
            raise
        self.outages.report_success("heartbeat")
        for context, answer in zip(due, answers, strict=True):
            self.handle_answer(context, answer)

    def handle_answer(self, context: Context, answer: Answer) -> None:
        if answer.cancel_requested:
            context.cancelled = True
        held = answer.kind in (AnswerKind.DONE, AnswerKind.BUSY)
        # A run that is over may just have been settled, or by its own transaction.
        if not held and not (context.lost or context.over or context.inside):
            context.lost = True
            with contextlib.suppress(RuntimeError):
                self.worker_loop.call_soon_threadsafe(self.lost, context)

    def run_in_thread(self, connect: Callable[[], Awaitable[BrokerInterface]]) -> None:
        """Starts the heartbeat in a thread with its own loop and connection."""
        self.thread = threading.Thread(
            target=lambda: asyncio.run(self.run_connected(connect)),
            name="penstock-heart",
            daemon=True,
        )
        self.thread.start()

    async def run_connected(self, connect: Callable[[], Awaitable[BrokerInterface]]) -> None:
        self.loop, self.nudged = asyncio.get_running_loop(), asyncio.Event()
        if self.standby is None:
            await self.run_with_reconnect(connect)
            return
        beats = asyncio.create_task(self.standby.run())
        try:
            await self.run_with_reconnect(connect)
        finally:
            beats.cancel()
            await asyncio.wait([beats])
            self.standby.stop()

    async def run_with_reconnect(self, connect: Callable[[], Awaitable[BrokerInterface]]) -> None:
        while not self.stopping:
            try:
                broker = await connect()
            except StoreError as error:
                self.outages.report_failure("heartbeat", error)
                await asyncio.sleep(LEASE_RETRY_DELAY_S)
                continue
            except Exception as error:  # noqa: BLE001 - without a heartbeat every lease is lost
                log.error("heartbeat_failed", error=repr(error))
                await asyncio.sleep(LEASE_RETRY_DELAY_S)
                continue
            async with broker:
                await self.run(broker)

    async def stop(self) -> None:
        self.stopping = True
        self.wake()
        if self.thread is not None:
            await asyncio.to_thread(self.thread.join, 5.0)


def is_watched(context: Context) -> bool:
    """True if the run goes on, and no cancel request or lost lease is known yet."""
    stopped = context.cancelled or context.lost
    ended = context.over or context.inside
    return not stopped and not ended and context.renew_at < inf
