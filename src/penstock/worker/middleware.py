"""Handlers that wrap another handler: ack before run, and tracing."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from penstock import tracing
from penstock.worker.context import Context
from penstock.worker.handler import Handler


class HandlerMiddleware(Handler):
    def __init__(self, inner: Handler) -> None:
        super().__init__(
            inner.function,
            queue=inner.queue,
            type=inner.type,
            executor=inner.executor,
            rules=inner.rules,
            timeout=inner.timeout,
            batch=inner.batch,
            batch_wait=inner.batch_wait,
            name=inner.name,
        )
        self.must_return = inner.must_return
        self.inner = inner

    def begin(self, context: Context) -> Awaitable[Any]:
        return self.inner.begin(context)

    def keep(self, value: Any) -> bytes:
        return self.inner.keep(value)

    def admit(self, context: Context) -> bool:
        return self.inner.admit(context)

    def run_in_thread(self, context: Context) -> bytes | None:
        return self.inner.run_in_thread(context)

    async def run_batch(self, contexts: Sequence[Context]) -> list[BaseException | None]:
        return await self.inner.run_batch(contexts)


class AckFirstHandler(HandlerMiddleware):
    """Acks a message before its run. `acked` returns False if the lease was lost."""

    def __init__(self, inner: Handler, acked: Callable[[Context], Awaitable[bool]]) -> None:
        super().__init__(inner)
        self.acked = acked
        self.loop = asyncio.get_running_loop()

    async def begin(self, context: Context) -> Any:
        return await self.inner.begin(context) if await self.acked(context) else None

    def admit(self, context: Context) -> bool:
        async def ask() -> bool:
            return await self.acked(context)

        return asyncio.run_coroutine_threadsafe(ask(), self.loop).result()

    async def run_batch(self, contexts: Sequence[Context]) -> list[BaseException | None]:
        """Runs the acked messages. Their errors are ignored, because the acks are final."""
        acked = await asyncio.gather(*map(self.acked, contexts))
        kept = [context for context, held in zip(contexts, acked, strict=True) if held]
        if kept:
            await self.inner.run_batch(kept)
        return [None] * len(contexts)


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
