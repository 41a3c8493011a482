"""Runs an app's handlers in a simulation, one after the other and without a worker."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from penstock.app.app import Penstock
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.model.message import Leased, Nack, Park
from penstock.model.waiting import WaitPlan
from penstock.worker.ack_policy import follow_strategy, judge
from penstock.worker.context import Context
from penstock.worker.handler import Handler
from penstock.worker.local_context import NullReporter
from penstock.worker.steps import CodeChanged, StepRun, Suspend
from penstock.worker.suspension import check_handler, judge_steps

Work = Callable[[Leased], Awaitable[bytes | None]]
Outcome: TypeAlias = tuple[bytes | None, BaseException | None]
# Runs a plain handler, here or on the thread of the test.
PlainCall: TypeAlias = Callable[[Callable[[], Outcome]], Awaitable[Outcome]]


async def call_here(function: Callable[[], Outcome]) -> Outcome:
    return function()


def find_app_worker(
    app: Penstock, broker: BrokerInterface, queue: str, call: PlainCall = call_here
) -> Work:
    """Returns a function that handles a message as a worker of the app would."""
    routes = {handler.type: handler for handler in app.handlers([queue])}

    async def work(delivery: Leased) -> bytes | None:
        handler = routes.get(delivery.type) or routes.get(None)
        if handler is None:
            await broker.settle(delivery, Park())
            return None
        context = Context(delivery, queue, SimulatedReporter(broker, handler, app.scope), 30.0, 0.0)
        result, error = await run(handler, context, call)
        steps = judge_steps(context, error)
        if isinstance(steps, WaitPlan):
            await broker.waits.suspend(delivery, steps, scope=app.scope)
            return None
        verdict = steps or judge(handler.rules, delivery, error)
        if context.settled:
            verdict = context.settlement
            if isinstance(verdict, Nack):
                verdict = follow_strategy(handler.rules, delivery, verdict)
        if verdict is None and context.keys_seen:
            await broker.complete(delivery, result, seen=context.keys_seen)
        if verdict is None:
            return result
        await broker.settle(delivery, verdict)
        return None

    return work


async def run(handler: Handler, context: Context, call: PlainCall) -> Outcome:
    """Returns the result or the error. Plain functions do not run in a thread of a worker."""
    if handler.batch is None and handler.executor != "async":
        if call is call_here and getattr(handler, "with_context", False):
            # It may block on durable steps, which run on this loop.
            return await asyncio.to_thread(run_plain, handler, context)
        return await call(lambda: run_plain(handler, context))
    try:
        if handler.batch is not None:
            (error,) = await handler.run_batch([context])
            return None, error
        return await handler.run(context), None
    except (Exception, SystemExit, Suspend, CodeChanged) as raised:  # noqa: BLE001 - fails the run, not the test
        return None, raised


def run_plain(handler: Handler, context: Context) -> Outcome:
    try:
        return handler.run_in_thread(context), None
    except (Exception, SystemExit, Suspend, CodeChanged) as raised:  # noqa: BLE001 - fails the run, not the test
        return None, raised


class SimulatedReporter(NullReporter):
    """Opens durable steps on the broker of the simulation."""

    def __init__(self, broker: BrokerInterface, handler: Handler, scope: str) -> None:
        self.broker = broker
        self.handler = handler
        self.scope = scope
        self.loop = asyncio.get_running_loop()

    async def find_seen(self, queue: str, key: str) -> bool:
        return await self.broker.seen(queue, key, scope=self.scope) is not None

    def open_steps(self, delivery: Leased) -> StepRun:
        check_handler(self.handler)
        return StepRun(delivery, self.broker.waits, self.scope, self.loop)


def make_finder(broker: BrokerInterface) -> Callable[[], BrokerInterface]:
    """Returns a function that finds the broker for the running loop."""
    home = asyncio.get_running_loop()

    def find() -> BrokerInterface:
        if asyncio.get_running_loop() is home:
            return broker
        # Its methods are those of the broker it wraps, by `__getattr__`.
        return cast(BrokerInterface, LoopProxy(broker, home))

    return find


class LoopProxy:
    """Makes a broker usable from another event loop: its coroutines run on its own."""

    def __init__(self, target: object, home: asyncio.AbstractEventLoop) -> None:
        self.target = target
        self.home = home

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        if type(value).__module__.startswith("penstock.broker."):
            return LoopProxy(value, self.home)
        if not inspect.iscoroutinefunction(value):
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            work = value(*args, **kwargs)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.home))

        return call
