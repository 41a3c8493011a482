"""A handler whose runs are parts of the traces that their messages came from."""

from collections.abc import Sequence
from typing import Any

from penstock import tracing
from penstock.worker.around import HandlerMiddleware
from penstock.worker.context import Context


class TracedHandler(HandlerMiddleware):
    async def begin(self, context: Context) -> Any:
        with tracing.trace_run([context.delivery], context.queue):
            return await self.inner.begin(context)

    def run_in_thread(self, context: Context) -> bytes | None:
        with tracing.trace_run([context.delivery], context.queue):
            return self.inner.run_in_thread(context)

    async def run_batch(self, contexts: Sequence[Context]) -> list[BaseException | None]:
        with tracing.trace_run([each.delivery for each in contexts], contexts[0].queue):
            return await self.inner.run_batch(contexts)
