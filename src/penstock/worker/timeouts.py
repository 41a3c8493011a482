"""Timeouts of runs: the loop that looks for late ones. They end with `TimedOut`."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.worker.dispatcher import HandlerRoutes

TIMEOUT_CHECK_INTERVAL_S = 0.05


class TimeoutWatcher:
    """Looks for late runs periodically, while there may be runs with a timeout.

    Executors end them in `sweep`: a coroutine is cancelled, a thread is abandoned and replaced, a
    process is killed.
    """

    def __init__(
        self, routes: "HandlerRoutes", timed: asyncio.Event, is_busy: Callable[[], bool]
    ) -> None:
        self.routes = routes
        # Set while there may be runs with a timeout.
        self.timed = timed
        self.is_busy = is_busy

    async def step(self) -> None:
        if not self.is_busy():
            self.timed.clear()
        await self.timed.wait()
        await asyncio.sleep(TIMEOUT_CHECK_INTERVAL_S)
        for executor in self.routes.executors:
            executor.sweep(time.monotonic())
