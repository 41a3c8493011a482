"""The files a run attached are kept before its end is written."""

import asyncio
from collections.abc import Callable

import structlog

from penstock.broker import Broker
from penstock.message import Fail
from penstock.worker.context import Context
from penstock.worker.flush import RunEnd
from penstock.worker.handler import Handler
from penstock.worker.policy import format_error, judge
from penstock.worker.tracebacks import Tracebacks

log = structlog.get_logger()


class ArtifactKeeper:
    def __init__(self, broker: Broker, add: Callable[[RunEnd], None]) -> None:
        self.broker = broker
        self.add = add
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, handler: Handler, end: RunEnd) -> None:
        task = asyncio.create_task(self.keep(handler, end))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def keep(self, handler: Handler, end: RunEnd) -> None:
        """A run whose files cannot be kept has failed."""
        context = end.context
        try:
            if end.verdict is None or isinstance(end.verdict, Fail):
                uploads, context.attached = context.attached or [], None
                await self.broker.artifacts.attach_uploads(context.delivery, uploads)
        except Exception as error:  # noqa: BLE001 - whatever it was, the message has to end
            log.warning("not_attached", id=context.id, error=format_error(error))
            verdict = judge(handler.rules, context.delivery, error)
            end = RunEnd(context, Tracebacks().attach(verdict, error), None, error)
        drop(context)
        self.add(end)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def drop(context: Context) -> None:
    """What it attached is of no use any more."""
    for upload in context.attached or ():
        upload.discard()
    context.attached = None
