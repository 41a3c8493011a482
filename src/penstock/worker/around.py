"""A handler around another one."""

from collections.abc import Awaitable, Sequence
from typing import Any

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
            name=inner.name,
        )
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
