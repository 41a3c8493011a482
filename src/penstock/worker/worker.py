"""The worker: connects fetchers, dispatcher, executors, heartbeat and completer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Self

import structlog

from penstock.broker.interfaces.broker import BrokerInterface
from penstock.client.brokers import StoreAddress
from penstock.errors import StoreError
from penstock.model.message import Leased, Nack, Release, Settlement, State
from penstock.model.queue import Queue
from penstock.model.settings import QueueSettings
from penstock.model.store_types import DONE, Answer, AnswerKind
from penstock.runner import make_identity
from penstock.worker.attempt_timer import AttemptTimer
from penstock.worker.completer import RETRIED_ANSWERS, ArtifactKeeper, Completer, RunEnd, drop
from penstock.worker.context import Context
from penstock.worker.dispatcher import Dispatcher, HandlerRoutes
from penstock.worker.executors.base import Executor
from penstock.worker.fetcher import Fetcher
from penstock.worker.forks import notice_forks
from penstock.worker.handler import Handler
from penstock.worker.heartbeat import Heartbeat
from penstock.worker.loops import repeat_forever
from penstock.worker.options import WorkerOptions
from penstock.worker.policy import Unfit, follow_strategy, judge, needs_times
from penstock.worker.prefetch import GiveBack
from penstock.worker.quarantine import Quarantine
from penstock.worker.run_log import RunLog
from penstock.worker.standby import Standby
from penstock.worker.suspension import Suspender
from penstock.worker.tracebacks import Tracebacks

log = structlog.get_logger()
# Settles a message whose completion was rolled back with the handler's transaction.
ROLLED_BACK = Nack("its transaction was rolled back", reason="ROLLED_BACK")
# A hook must not raise.
Hook = Callable[[str, Context, BaseException | None], None]
WATCH_INTERVAL_S = 0.05
# Time to write results after the grace period.
FINAL_FLUSH_TIMEOUT_S = 5.0


class Worker:
    """Runs handlers until stopped. Leases are renewed until the last run has ended."""

    def __init__(
        self,
        broker: BrokerInterface,
        handlers: Sequence[Handler],
        options: WorkerOptions | None = None,
        *,
        scope: str = "default",
        hook: Hook | None = None,
        connect: Callable[[], Awaitable[BrokerInterface]] | None = None,
        address: StoreAddress | None = None,
    ) -> None:
        self.broker = broker
        self.handlers = handlers
        self.options = options or WorkerOptions()
        self.scope = scope
        self.hook, self.connect = hook, connect
        self.identity = make_identity()
        self.held: dict[int, Context] = {}
        self.completed = self.settled = self.lost = self.finished = 0
        self.forked = False
        self.idle = asyncio.Event()
        self.routes = HandlerRoutes(self, self.options, self.ack_before_run)
        self.tracebacks = Tracebacks()
        self.run_log = RunLog(self.routes.handler_name)
        self.suspender = Suspender(broker, scope, self.routes, self)
        self.completer = Completer(
            broker, self.held, self.options.linger, self.handle_answers, self.suspender
        )
        self.artifact_keeper = ArtifactKeeper(broker, self.completer.add)
        self.attempt_timer = AttemptTimer(broker, scope)
        self.heartbeat = self.make_heartbeat(address)
        self.quarantine = Quarantine(broker, self.drop_suspect)
        self.give_back = GiveBack(self.quarantine, self.release)
        self.dispatcher = self.make_dispatcher()
        self.fetchers: list[Fetcher] = []
        self.fetching, self.tasks = list[asyncio.Task[None]](), list[asyncio.Task[None]]()

    def make_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.held,
            self.routes,
            self.quarantine,
            self.heartbeat,
            reporter=self.completer,
            refuse=self.refuse,
            settings=self.get_settings,
        )

    def make_heartbeat(self, address: StoreAddress | None) -> Heartbeat:
        grace, standby = self.options.grace, None
        if address is not None:
            standby = Standby(address, self.held, grace, self.running)
        return Heartbeat(self.held, self.handle_lost_lease, grace, self.broker.outages, standby)

    @property
    def queues(self) -> dict[int, Queue]:
        return self.routes.queues

    @property
    def busy(self) -> bool:
        """True if a message is running or held."""
        return bool(self.held) or any(lane.running for lane in self.routes.executors)

    def running(self) -> list[str]:
        """Returns the names of the running handlers."""
        return [name for lane in self.routes.executors for name in lane.names()]

    def counts(self) -> dict[str, int]:
        """Counts the running messages, and those held that have not started or just ended."""
        running = sum(lane.running for lane in self.routes.executors)
        return {"running": running, "waiting": max(0, len(self.held) - running)}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self) -> None:
        await self.routes.open(self.broker, self.handlers, self.scope)
        notice_forks(self)
        self.heartbeat.prepare(self.shortest_lease())
        for lane in self.routes.executors:
            lane.start()
        if self.connect is None:
            self.tasks.append(asyncio.create_task(self.heartbeat.run(self.broker)))
        else:
            self.heartbeat.run_in_thread(self.connect)
        for step in (self.completer.step, self.quarantine.step, self.watch, self.give_back.step):
            self.tasks.append(asyncio.create_task(repeat_forever(step)))
        for names, lanes in self.routes.group_queues():
            fetch = self.make_fetcher(names, lanes)
            self.fetchers.append(fetch)
            self.give_back.watch(fetch)
            self.fetching.append(asyncio.create_task(fetch.run()))

    def shortest_lease(self) -> float:
        return self.options.lease or min(queue.settings.lease for queue in self.queues.values())

    def make_fetcher(self, names: list[str], lanes: list[Executor]) -> Fetcher:
        return Fetcher(
            self.broker, names, lanes, self.options, self.identity, scope=self.scope,
            suspects=self.quarantine, take=self.take,
        )  # fmt: skip

    def take(self, deliveries: list[Leased], lease: float) -> None:
        self.dispatcher.take(deliveries, lease)
        self.give_back.claimed.set()

    def refuse(self, context: Context, settlement: Settlement) -> None:
        """Settles a message without running it."""
        self.finish_run(context)
        self.completer.add(RunEnd(context, settlement))

    def get_settings(self, context: Context) -> QueueSettings:
        """Returns the current settings of the message's queue."""
        id = context.delivery.queue_id
        return (self.broker.find_queue_by_id(id) or self.queues[id]).settings

    async def ack_before_run(self, context: Context) -> bool:
        """Acks a message before its run. Returns False if it must not run."""
        try:
            (answer,) = await self.broker.complete_many([context.make_completion(None)])
        except StoreError as error:
            self.broker.outages.report_failure("ack_first", error)
            log.warning("ack_first_failed", id=context.id)
            return False
        self.broker.outages.report_success("ack_first")
        self.let_go(context)
        self.handle_answers([RunEnd(context)], [answer])
        return answer.kind is AnswerKind.DONE

    def handle_end(
        self, handler: Handler, context: Context, result: bytes | None, error: BaseException | None
    ) -> None:
        self.finish_run(context)
        if context.inside:
            verdict = self.judge_end(handler, context, None, error).verdict if error else None
            self.completer.add(RunEnd(context, verdict or ROLLED_BACK, None, error))
            return
        decided = context.settled or context.attached is not None or context.steps is not None
        if error is None and result is None and handler.plain and not decided:
            self.completer.add(RunEnd(context))
            return
        if context.steps is not None and self.suspender.end_steps(handler, context, error):
            return
        settle = partial(self.settle_end, handler, context, result, error)
        if needs_times(handler.rules, error, context.settlement):
            self.attempt_timer.begin(context, settle)
        else:
            settle()

    def settle_end(
        self, handler: Handler, context: Context, result: bytes | None, error: BaseException | None
    ) -> None:
        end = self.judge_end(handler, context, result, error)
        if error is not None and end.verdict is None:
            self.run_log.log_ignored(context, error)
        if handler.ack_first:
            drop(context)
            self.let_go(context)
            self.quarantine.release_turn(context)
        elif context.attached:
            self.artifact_keeper.begin(handler, end)
        else:
            self.completer.add(end)

    def finish_run(self, context: Context) -> None:
        context.over = True
        context.ended_at = context.ended_at or time.monotonic()
        self.finished += 1

    def judge_end(
        self, handler: Handler, context: Context, result: bytes | None, error: BaseException | None
    ) -> RunEnd:
        settings = self.get_settings(context)
        if result is None and error is None and settings.require_result:
            result = b"null"
        if result is not None and len(result) > (most := settings.max_body):
            error = error or Unfit(f"result has {len(result)} bytes; at most {most} are stored")
            result = None
        if handler.manual and error is None and not context.settled:
            log.error("run_not_settled", id=context.id, handler=handler.name)
        verdict = context.settlement
        if not context.settled:
            verdict = judge(handler.rules, context.delivery, error, context.times)
        elif isinstance(verdict, Nack):
            verdict = follow_strategy(handler.rules, context.delivery, verdict, context.times)
        return RunEnd(context, self.tracebacks.attach(verdict, error), result, error)

    def notify_room(self) -> None:
        for fetch in self.fetchers:
            fetch.room.set()

    def handle_answers(self, ends: list[RunEnd], answers: list[Answer]) -> None:
        """Handles written results: counts, logs, hooks, and the quarantine's next run."""
        self.tracebacks.forget()
        if self.hook is None and answers.count(DONE) == len(ends) and ends[0].verdict is None:
            self.completed += len(ends)
            self.run_log.log_completed(ends)
        else:
            for end, answer in zip(ends, answers, strict=True):
                self.handle_answer(end, answer)
        alone = self.quarantine.current
        # It is still held if the write is retried, and not over if it was acked before its run.
        if alone is not None and alone.over and self.held.get(alone.id) is not alone:
            self.quarantine.release_turn(alone)
        if not self.held:
            self.idle.set()

    def handle_answer(self, end: RunEnd, answer: Answer) -> None:
        if answer.kind in RETRIED_ANSWERS:
            return
        if answer.kind not in (AnswerKind.DONE, AnswerKind.ALREADY):
            if not end.context.lost:
                end.context.lost = True
                self.handle_lost_lease(end.context)
            self.broker.note_lost_lock(end.context.id, end.context.fence)
            if end.error is not None:
                self.run_log.log_settled(end, None)
        elif end.verdict is None or answer.state is State.COMPLETED:
            self.completed += 1
            self.run_log.log_completed([end])
            self.emit("completed", end.context, end.error)
        else:
            self.settled += 1
            self.run_log.log_settled(end, answer.state)
            self.emit(answer.state.value if answer.state else "settled", end.context, end.error)

    def let_go(self, context: Context) -> None:
        if self.held.get(context.id) is context:
            del self.held[context.id]
        self.idle.set()

    def drop_suspect(self, context: Context) -> None:
        """Drops a suspect that was lost before it began, and frees its slot."""
        self.let_go(context)
        self.notify_room()

    def handle_lost_lease(self, context: Context) -> None:
        if context.inside:
            return
        self.lost += 1
        log.warning("lease_lost", id=context.id, queue=context.queue, fence=context.fence)
        self.emit("lease_lost", context, None)

    def emit(self, event: str, context: Context, error: BaseException | None) -> None:
        if self.hook is not None:
            self.hook(event, context, error)

    async def watch(self) -> None:
        """Checks all runs for timeouts periodically, while there are runs with a timeout."""
        if not self.busy:
            self.dispatcher.timed.clear()
        await self.dispatcher.timed.wait()
        await asyncio.sleep(WATCH_INTERVAL_S)
        for lane in self.routes.executors:
            lane.sweep(time.monotonic())

    async def stop(self) -> None:
        """Releases unstarted messages, and lets running ones finish within the grace period."""
        for fetch in self.fetchers:
            fetch.stop()
        await asyncio.gather(*self.fetching, return_exceptions=True)
        self.release(self.quarantine.take_back())
        for lane in self.routes.executors:
            self.release(lane.take_back())
        self.completer.hurry = True
        await self.wait_until_drained(self.options.grace)
        for cut in await asyncio.gather(*(lane.stop() for lane in self.routes.executors)):
            self.release(cut)
        if not await self.wait_until_drained(FINAL_FLUSH_TIMEOUT_S):
            log.error("unsettled_at_shutdown", count=self.completer.waiting)
        self.run_log.log_left_out(time.monotonic())
        await self.artifact_keeper.stop()
        await self.heartbeat.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def release(self, contexts: Iterable[Context]) -> None:
        """Releases messages, unless their handler has settled them."""
        for context in contexts:
            self.finish_run(context)
            drop(context)
            if context.id in self.held:
                verdict = context.settlement if context.settled else Release()
                self.completer.add(RunEnd(context, verdict))

    async def wait_until_drained(self, timeout: float) -> bool:
        """Waits until nothing is held or running. Returns False on timeout."""
        try:
            async with asyncio.timeout(timeout):
                while self.busy:
                    self.idle.clear()
                    await self.idle.wait()
        except TimeoutError:
            return False
        return True
