"""A handler whose messages are acknowledged before they run: each runs once, or never."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from penstock.worker.around import HandlerMiddleware
from penstock.worker.context import Context
from penstock.worker.handler import Handler


class AckFirstHandler(HandlerMiddleware):
    """`acked` is False if the message is not this worker's any more."""

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
        """Whatever it raises comes too late; those that are lost are left out."""
        acked = await asyncio.gather(*map(self.acked, contexts))
        kept = [context for context, held in zip(contexts, acked, strict=True) if held]
        if kept:
            await self.inner.run_batch(kept)
        return [None] * len(contexts)
