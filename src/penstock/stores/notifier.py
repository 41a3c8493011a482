"""Wakes consumers that wait for work, in this process and through a channel in others."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol

from penstock.retry_policies import LOOP_RETRY_DELAY_S
from penstock.store import Check


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
        """Returns a future that ends when one of the queues may have work."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting[future] = frozenset(queue_ids)
        future.add_done_callback(self._forget)
        return future

    @property
    def wanted(self) -> frozenset[int]:
        """The queues that have waiters."""
        return frozenset().union(*self.waiting.values())

    def _forget(self, future: "asyncio.Future[None]") -> None:
        self.waiting.pop(future, None)


async def wait_until_heard(heard: "asyncio.Future[None]", timeout: float) -> None:
    """Waits with a timer that ends the future, which is cheaper than cancelling a task."""
    timer = asyncio.get_running_loop().call_later(timeout, end_wait, heard)
    try:
        await heard
    finally:
        timer.cancel()


def end_wait(heard: "asyncio.Future[None]") -> None:
    if not heard.done():
        heard.set_result(None)


class WorkNotifier(Protocol):
    """Wakes consumers when work arrives."""

    wakes: int

    @property
    def longest_wait(self) -> float:
        """The longest time a waiter sleeps before it polls, in seconds."""

    def wait(self, queue_ids: Collection[int]) -> "asyncio.Future[None]":
        """Returns a future that ends when one of the queues may have work."""

    def listen(self) -> None:
        """Starts to listen for notices of other processes."""


async def wait_for_work(
    notifier: WorkNotifier,
    any_ready: Callable[[Collection[int]], Awaitable[bool]],
    queue_ids: Collection[int],
    timeout: float,
    since: int | None,
) -> None:
    """Waits until notified, or until it is time to poll. `since`: `wakes` of an earlier claim."""
    heard = notifier.wait(queue_ids)
    # Check after starting to wait, so that nothing in between is missed.
    missed = await any_ready(queue_ids) if since is None else since != notifier.wakes
    if missed:
        heard.cancel()
        return
    notifier.listen()
    await wait_until_heard(heard, min(timeout, notifier.longest_wait))


# The first notice is sent at once; later ones within this interval are batched.
MIN_NOTIFY_INTERVAL_S = 0.005
# PostgreSQL limits a notice to 8,000 bytes.
MAX_QUEUES_PER_NOTICE = 500
POLL_INTERVAL_LISTENING_S, POLL_INTERVAL_DEAF_S = 1.0, 0.05


class NullNotifier(Waiters):
    """Wakes waiters of this process only; those of other processes poll."""

    hears = False

    @property
    def longest_wait(self) -> float:
        """The longest time a waiter sleeps before it polls, in seconds."""
        return POLL_INTERVAL_LISTENING_S if self.hears else POLL_INTERVAL_DEAF_S

    def notify(self, queue_ids: Iterable[int]) -> None:
        """Call it after the commit, never inside the transaction."""
        self.wake(queue_ids)

    def listen(self) -> None: ...

    async def close(self) -> None:
        self.wake(None)

    async def examine(self) -> Check:
        return Check("wake", "consumers poll")


class Listener(NullNotifier, ABC):
    """Listens on a channel for notices of other processes."""

    # Errors the channel may raise; waiters poll while it is down.
    errors: tuple[type[BaseException], ...]

    def __init__(self) -> None:
        super().__init__()
        self.listening: asyncio.Task[None] | None = None

    @abstractmethod
    async def listen_once(self) -> None:
        """Listens until the channel is gone. Sets `hears` once no notice can be missed."""

    @abstractmethod
    async def drop(self) -> None:
        """Closes a broken channel."""

    def listen(self) -> None:
        if self.listening is None:
            self.listening = asyncio.get_running_loop().create_task(self.keep_listening())

    async def keep_listening(self) -> None:
        while True:
            try:
                await self.listen_once()
            except self.errors:
                await asyncio.sleep(LOOP_RETRY_DELAY_S)
            finally:
                self.hears = False

    def handle_notice(self, notice: str) -> None:
        self.wake({int(word) for word in notice.split(",") if word.isdecimal()})

    async def close(self) -> None:
        await super().close()
        await cancel_task(self.listening)
        await self.drop()


class Notifier(Listener):
    """Sends notices to other processes as well, after the commit."""

    def __init__(self) -> None:
        super().__init__()
        self.news: set[int] = set()
        self.sending: asyncio.Task[None] | None = None
        self.closed = False

    @abstractmethod
    async def send(self, notice: str) -> None: ...

    def notify(self, queue_ids: Iterable[int]) -> None:
        woken = set(queue_ids)
        if not woken:
            return
        self.wake(woken)
        if self.closed:
            # A call outlived the store. A new connection for its notice would never be closed.
            return
        self.news |= woken
        if self.sending is None:
            self.sending = asyncio.get_running_loop().create_task(self.send_all())

    async def send_all(self) -> None:
        try:
            while self.news:
                queues, self.news = sorted(self.news), set()
                for start in range(0, len(queues), MAX_QUEUES_PER_NOTICE):
                    await self.say(
                        ",".join(map(str, queues[start : start + MAX_QUEUES_PER_NOTICE]))
                    )
                await asyncio.sleep(MIN_NOTIFY_INTERVAL_S)
        finally:
            self.sending = None

    async def say(self, notice: str) -> None:
        try:
            await self.send(notice)
        except self.errors:
            await self.drop()

    async def close(self) -> None:
        self.closed = True
        if self.sending is not None:
            await asyncio.wait([self.sending], timeout=LOOP_RETRY_DELAY_S)
        await cancel_task(self.sending)
        await super().close()


async def cancel_task(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
