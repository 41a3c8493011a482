"""The worker: what is claimed runs in its lane, and its end is written."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Self

import structlog

from penstock.broker import Broker
from penstock.connections import StoreAddress
from penstock.errors import StoreError
from penstock.message import Nack, Release, Settlement, State
from penstock.queue import Queue
from penstock.runner import identity
from penstock.settings import QueueSettings
from penstock.ticket import DONE, Answer, AnswerKind
from penstock.worker.context import Context
from penstock.worker.fetch import Fetch
from penstock.worker.flush import AGAIN, End, Flush
from penstock.worker.forever import keep_on
from penstock.worker.forks import notice_forks
from penstock.worker.handler import Handler
from penstock.worker.heart import Heart
from penstock.worker.intake import Intake
from penstock.worker.keeping import Keeping, drop
from penstock.worker.lanes import Lane
from penstock.worker.options import WorkerOptions
from penstock.worker.policy import Unfit, judge, text_of
from penstock.worker.routes import Routes
from penstock.worker.standby import Standby
from penstock.worker.suspects import Suspects

log = structlog.get_logger()
# What becomes of a message whose completion was part of a transaction that was not committed.
ROLLED_BACK = Nack("its transaction was rolled back", reason="ROLLED_BACK")
# Must not raise.
Hook = Callable[[str, Context, BaseException | None], None]
WATCH = 0.05
# To write what ended when the grace time is over.
LAST = 5.0


class Worker:
    """Runs handlers until stopped. Leases are renewed until the last run has ended."""

    def __init__(
        self,
        broker: Broker,
        handlers: Sequence[Handler],
        options: WorkerOptions | None = None,
        *,
        scope: str = "default",
        hook: Hook | None = None,
        connect: Callable[[], Awaitable[Broker]] | None = None,
        address: StoreAddress | None = None,
    ) -> None:
        self.broker = broker
        self.handlers = handlers
        self.options = options or WorkerOptions()
        self.scope = scope
        self.hook = hook
        self.connect = connect
        self.identity = identity()
        self.held: dict[int, Context] = {}
        self.completed = self.settled = self.lost = self.finished = 0
        self.forked = False
        self.idle = asyncio.Event()
        self.routes = Routes(self, self.options, self.acked)
        self.flush = Flush(broker, self.held, self.options.linger, self.told)
        self.keeping = Keeping(broker, self.flush.add)
        self.heart = self.make_heart(address)
        self.suspects = Suspects(broker, self.let_go)
        self.intake = Intake(
            self.held,
            self.routes,
            self.suspects,
            self.heart,
            desk=self.flush,
            refuse=self.refuse,
            settings=self.settings,
        )
        self.fetches: list[Fetch] = []
        self.fetching: list[asyncio.Task[None]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def make_heart(self, address: StoreAddress | None) -> Heart:
        held, grace = self.held, self.options.grace
        standby = None if address is None else Standby(address, held, grace, self.running)
        return Heart(held, self.lease_lost, grace, standby)

    @property
    def queues(self) -> dict[int, Queue]:
        return self.routes.queues

    @property
    def busy(self) -> bool:
        """Something runs, or is held."""
        return bool(self.held) or any(lane.running for lane in self.routes.lanes)

    def running(self) -> list[str]:
        """The handlers that run now, by name."""
        return [name for lane in self.routes.lanes for name in lane.names()]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self) -> None:
        await self.routes.open(self.broker, self.handlers, self.scope)
        notice_forks(self)
        for lane in self.routes.lanes:
            lane.start()
        if self.connect is None:
            self.tasks.append(asyncio.create_task(self.heart.run(self.broker)))
        else:
            self.heart.run_in_thread(self.connect)
        for step in (self.flush.step, self.suspects.step, self.watch):
            self.tasks.append(asyncio.create_task(keep_on(step)))
        for names, lanes in self.routes.groups():
            fetch = self.fetch(names, lanes)
            self.fetches.append(fetch)
            self.fetching.append(asyncio.create_task(fetch.run()))

    def fetch(self, names: list[str], lanes: list[Lane]) -> Fetch:
        return Fetch(
            self.broker,
            names,
            lanes,
            self.options,
            self.identity,
            scope=self.scope,
            suspects=lambda: self.suspects.waiting(lanes),
            take=self.intake.take,
        )

    def refuse(self, context: Context, settlement: Settlement) -> None:
        """It does not run here."""
        self.over(context)
        self.flush.add(End(context, settlement))

    def settings(self, context: Context) -> QueueSettings:
        """As they are now; a claim has just looked."""
        queue_id = context.delivery.queue_id
        return self.broker.directory.by_id.get(queue_id, self.queues[queue_id]).settings

    async def acked(self, context: Context) -> bool:
        """For a message acknowledged before its run; False if it may not run any more."""
        try:
            (answer,) = await self.broker.complete_many([context.completion(None)])
        except StoreError as error:
            log.error("not_acked_first", id=context.id, error=str(error))
            return False
        self.let_go(context)
        self.told([End(context)], [answer])
        return answer.kind is AnswerKind.DONE

    def ended(
        self, handler: Handler, context: Context, result: bytes | None, error: BaseException | None
    ) -> None:
        self.over(context)
        if context.inside:
            verdict = self.judged(handler, context, None, error).verdict if error else None
            self.flush.add(End(context, verdict or ROLLED_BACK, None, error))
            return
        plain = handler.plain and not context.settled and context.attached is None
        if error is None and result is None and plain:
            self.flush.add(End(context))
            return
        if error is not None:
            log.info("run_failed", id=context.id, handler=handler.name, error=text_of(error))
        if handler.ack_first:
            drop(context)
            self.let_go(context)
        elif context.attached:
            self.keeping.begin(handler, self.judged(handler, context, result, error))
        else:
            self.flush.add(self.judged(handler, context, result, error))

    def over(self, context: Context) -> None:
        context.over = True
        self.finished += 1
        if context is self.suspects.alone:
            self.suspects.ended(context)

    def judged(
        self, handler: Handler, context: Context, result: bytes | None, error: BaseException | None
    ) -> End:
        most = self.settings(context).max_body
        if result is not None and len(result) > most:
            error = error or Unfit(f"a result of {len(result)} bytes, and at most {most} are kept")
            result = None
        if context.settled:
            return End(context, context.settlement, result, error)
        if handler.manual and error is None:
            log.error("run_not_settled", id=context.id, handler=handler.name)
        return End(context, judge(handler.rules, context.delivery, error), result, error)

    def has_room(self) -> None:
        for fetch in self.fetches:
            fetch.room.set()

    def told(self, ends: list[End], answers: list[Answer]) -> None:
        """The ends of runs are durable, or their leases were lost."""
        if self.hook is None and answers.count(DONE) == len(ends) and ends[0].verdict is None:
            self.completed += len(ends)
        else:
            for end, answer in zip(ends, answers, strict=True):
                self.told_one(end, answer)
        if not self.held:
            self.idle.set()

    def told_one(self, end: End, answer: Answer) -> None:
        if answer.kind in AGAIN:
            return
        if answer.kind not in (AnswerKind.DONE, AnswerKind.ALREADY):
            if not end.context.lost:
                end.context.lost = True
                self.lease_lost(end.context)
        elif end.verdict is None or answer.state is State.COMPLETED:
            self.completed += 1
            self.tell("completed", end.context, end.error)
        else:
            self.settled += 1
            self.tell(answer.state.value if answer.state else "settled", end.context, end.error)

    def let_go(self, context: Context) -> None:
        """It is not this worker's any more."""
        if self.held.get(context.id) is context:
            del self.held[context.id]
        self.idle.set()

    def lease_lost(self, context: Context) -> None:
        if context.inside:
            return
        self.lost += 1
        log.warning("lease_lost", id=context.id, queue=context.queue, fence=context.fence)
        self.tell("lease_lost", context, None)

    def tell(self, event: str, context: Context, error: BaseException | None) -> None:
        if self.hook is not None:
            self.hook(event, context, error)

    async def watch(self) -> None:
        """One look at all runs, instead of a timer for each; none while no run has a limit."""
        if not self.busy:
            self.intake.timed.clear()
        await self.intake.timed.wait()
        await asyncio.sleep(WATCH)
        for lane in self.routes.lanes:
            lane.sweep(time.monotonic())

    async def stop(self) -> None:
        """What is not started goes back, what runs may finish; leases are kept until then."""
        for fetch in self.fetches:
            fetch.stop()
        await asyncio.gather(*self.fetching, return_exceptions=True)
        self.release(self.suspects.take_back())
        for lane in self.routes.lanes:
            self.release(lane.take_back())
        self.flush.hurry = True
        await self.drained(self.options.grace)
        for cut in await asyncio.gather(*(lane.stop() for lane in self.routes.lanes)):
            self.release(cut)
        if not await self.drained(LAST):
            log.error("stopped_with_ends_unwritten", count=self.flush.waiting)
        await self.keeping.stop()
        await self.heart.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def release(self, contexts: Iterable[Context]) -> None:
        """Back unworked, unless the handler has said what is to become of it."""
        for context in contexts:
            self.over(context)
            drop(context)
            if context.id in self.held:
                verdict = context.settlement if context.settled else Release()
                self.flush.add(End(context, verdict))

    async def drained(self, patience: float) -> bool:
        """True when nothing runs and nothing is held any more."""
        try:
            async with asyncio.timeout(patience):
                while self.busy:
                    self.idle.clear()
                    await self.idle.wait()
        except TimeoutError:
            return False
        return True
