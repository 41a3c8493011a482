"""Runs an app's handlers in a simulation, one after the other and without a worker."""

from collections.abc import Awaitable, Callable

from penstock.app.app import Penstock
from penstock.broker.interface import BrokerInterface
from penstock.model.message import Leased, Park
from penstock.worker.context import Context, NullReporter
from penstock.worker.handler import Handler
from penstock.worker.policy import judge

Work = Callable[[Leased], Awaitable[bytes | None]]


def find_app_worker(app: Penstock, broker: BrokerInterface, queue: str) -> Work:
    """Returns a function that handles a message as a worker of the app would."""
    routes = {handler.type: handler for handler in app.handlers([queue])}

    async def work(delivery: Leased) -> bytes | None:
        handler = routes.get(delivery.type) or routes.get(None)
        if handler is None:
            await broker.settle(delivery, Park())
            return None
        context = Context(delivery, queue, NullReporter(), 30.0, 0.0)
        result, error = await run(handler, context)
        verdict = judge(handler.rules, delivery, error)
        if context.settled:
            verdict = context.settlement
        if verdict is None:
            return result
        await broker.settle(delivery, verdict)
        return None

    return work


async def run(handler: Handler, context: Context) -> tuple[bytes | None, BaseException | None]:
    """Returns the result or the error. Plain functions run here, not in a thread."""
    try:
        if handler.batch is not None:
            (error,) = await handler.run_batch([context])
            return None, error
        if handler.executor == "async":
            return await handler.run(context), None
        return handler.run_in_thread(context), None
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - fails the run, not the test
        return None, raised
