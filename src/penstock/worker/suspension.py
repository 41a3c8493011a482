"""Ends runs that used durable steps: those that wait are suspended, others are settled."""

import asyncio
from typing import Protocol

import structlog

from penstock.broker.interfaces.broker import BrokerInterface
from penstock.errors import StepTooLarge, StoreError
from penstock.model.message import Leased, Park, Release, Settlement, SettleReject
from penstock.model.store_types import Answer
from penstock.model.waiting import WaitPlan
from penstock.retry_policies import LEASE_RETRY_DELAY_S
from penstock.rules.lifecycle import CODE_CHANGED
from penstock.worker.ack_policy import TimedOut, format_error
from penstock.worker.completer import Completer, RunEnd, drop
from penstock.worker.context import Context
from penstock.worker.dispatcher import HandlerRoutes
from penstock.worker.handler import Handler, TaskHandler
from penstock.worker.step_calls import refuse_steps
from penstock.worker.steps import CodeChanged, StepRun, Suspend

# Marks a wait, which is written separately.
WAITED = Release()
SWALLOWED = "the handler caught Suspend; it must let it propagate"
log = structlog.get_logger()


def judge_steps(context: Context, error: BaseException | None) -> WaitPlan | Settlement | None:
    """Decides how a run with durable steps ends, or returns None if it ends like any other."""
    steps = context.steps
    if steps is not None and steps.plan is not None:
        if find_error(error, Suspend) is not None:
            return steps.plan
        failed = isinstance(error, TimedOut) or (error is not None and steps.failed)
        return None if failed else SettleReject(SWALLOWED)
    if (changed := find_error(error, CodeChanged)) is not None:
        log.warning("code_changed", id=context.id, error=str(changed))
        return Park(CODE_CHANGED)
    if (large := find_error(error, StepTooLarge)) is not None:
        return SettleReject(format_error(large))
    return None


def find_error(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """Returns the error itself, or the first one of its kind in a group."""
    if isinstance(error, kind):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = (find_error(each, kind) for each in error.exceptions)
        return next((each for each in found if each is not None), None)
    return None


def check_handler(handler: Handler) -> None:
    """Refuses durable steps where a run cannot be suspended."""
    if handler.ack_first or handler.manual:
        refuse_steps(f"with the ack policy {handler.rules.policy}")
    if not isinstance(handler, TaskHandler):
        refuse_steps("by a subscriber; make it a task")
    if handler.executor not in ("async", "thread"):
        refuse_steps(f"by the {handler.executor} executor")


class RunSink(Protocol):
    """The worker, which settles the runs that do not wait."""

    def settle_end(
        self, handler: Handler, context: Context, result: bytes | None, error: BaseException | None
    ) -> None: ...

    def remove_held(self, context: Context) -> None: ...

    def handle_answers(self, ends: list[RunEnd], answers: list[Answer]) -> None: ...

    @property
    def completer(self) -> Completer: ...


class Suspender:
    """Ends the runs that used durable steps. Leases are renewed until a wait is written."""

    def __init__(
        self, broker: BrokerInterface, scope: str, routes: HandlerRoutes, sink: RunSink
    ) -> None:
        self.broker = broker
        self.scope = scope
        self.routes = routes
        self.sink = sink
        self.loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[None]] = set()

    def open_steps(self, delivery: Leased) -> StepRun:
        """Opens the durable steps of a run, if its handler may use them."""
        route = self.routes.find(delivery.queue_id, delivery.type)
        if route is not None:
            check_handler(route[0])
        return StepRun(delivery, self.broker.waits, self.scope, self.loop)

    def end_steps(self, handler: Handler, context: Context, error: BaseException | None) -> bool:
        """Ends a run that waits or whose steps do not fit. Returns False for any other."""
        verdict = judge_steps(context, error)
        if isinstance(verdict, WaitPlan):
            task = asyncio.create_task(self.write(handler, context, verdict))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        elif verdict is not None:
            drop(context)
            self.sink.completer.add(RunEnd(context, verdict, None, error))
        return verdict is not None

    async def write(self, handler: Handler, context: Context, plan: WaitPlan) -> None:
        """Writes the wait, and retries while the store is failing."""
        while not context.lost:
            try:
                answer = await self.broker.waits.suspend(context.delivery, plan, scope=self.scope)
            except StoreError as error:
                self.broker.outages.report_failure("wait", error)
                await asyncio.sleep(LEASE_RETRY_DELAY_S)
            except Exception as error:  # noqa: BLE001 - the run has failed with this error
                self.sink.settle_end(handler, context, None, error)
                return
            else:
                self.broker.outages.report_success("wait")
                drop(context)
                self.sink.remove_held(context)
                self.sink.handle_answers([RunEnd(context, WAITED)], [answer])
                return
