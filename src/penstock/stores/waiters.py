"""Whoever waits for work in this process, and what wakes them."""

import asyncio
from collections.abc import Collection, Iterable


class Waiters:
    def __init__(self) -> None:
        self.waiting: dict[asyncio.Future[None], frozenset[int]] = {}
        self.wakes = 0

    def wake(self, queue_ids: Iterable[int] | None) -> None:
        """Wakes the waiters of these queues; all of them for None."""
        woken = None if queue_ids is None else frozenset(queue_ids)
        if woken is not None and not woken:
            return
        self.wakes += 1
        for future, wanted in list(self.waiting.items()):
            if not future.done() and (woken is None or wanted & woken):
                future.set_result(None)

    def wait(self, queue_ids: Collection[int]) -> "asyncio.Future[None]":
        """A future that ends when one of the queues may have work."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting[future] = frozenset(queue_ids)
        future.add_done_callback(self._forget)
        return future

    @property
    def wanted(self) -> frozenset[int]:
        """The queues somebody waits for."""
        return frozenset().union(*self.waiting.values())

    def _forget(self, future: "asyncio.Future[None]") -> None:
        self.waiting.pop(future, None)


async def wait_until_heard(heard: "asyncio.Future[None]", timeout: float) -> None:
    """A timer that ends the future is cheaper than one that cancels a task."""
    timer = asyncio.get_running_loop().call_later(timeout, end_wait, heard)
    try:
        await heard
    finally:
        timer.cancel()


def end_wait(heard: "asyncio.Future[None]") -> None:
    if not heard.done():
        heard.set_result(None)
