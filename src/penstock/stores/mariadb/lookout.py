"""Notices what other processes published: the server itself looks, every few milliseconds.

Only while somebody waits, and less often when nothing has come for long. Whatever else may have
become ready is looked for now and then.
"""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.errors import StoreError
from penstock.stores.mariadb.session import Session
from penstock.stores.mariadb.statement import text_of
from penstock.stores.mariadb.trouble import ERRORS
from penstock.stores.wake import HEARING, Silence

# Seconds between two looks of the server, and for how long it looks in one call.
OFTEN, SELDOM, CALL = 0.002, 0.02, 0.1
# Looks in the time that nothing has come for.
LOOKS = 500
AFTER_TROUBLE = 1.0
# Of more news at once nobody is told one by one.
MANY = 1_000


class Lookout:
    """One session of its own, opened when somebody waits for the first time."""

    def __init__(self, connect: Callable[[], Awaitable[Session]], waiters: Silence) -> None:
        self.connect = connect
        self.waiters = waiters
        self.session: Session | None = None
        self.task: asyncio.Task[None] | None = None
        # The last message that was noticed: what came while nobody waited is told at once.
        self.seen = 0
        self.noticed_at = 0.0

    def begin(self) -> None:
        """Somebody waits from now on."""
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self.look_while_awaited())

    async def look_while_awaited(self) -> None:
        try:
            while self.waiters.waiting and not self.waiters.hears:
                try:
                    await self.look()
                except (StoreError, *ERRORS):
                    self.drop()
                    await asyncio.sleep(AFTER_TROUBLE)
        finally:
            self.task = None

    async def look(self) -> None:
        session, pause = await self.opened(), self.pause()
        looks, wanted = max(1, int(CALL / pause)), sorted(self.waiters.wanted)
        *_, newest, news, ready = await session.send(
            text_of("await_messages", looks=looks, pause=pause, seen=self.seen),
            text_of("newest_message"),
            text_of("queues_of_news", seen=self.seen, most=MANY),
            text_of("ready_queues", queues=wanted),
        )
        ((last,),) = newest.listed
        if not self.tell(last, {queue for (queue,) in news.listed}):
            self.waiters.wake({queue for (queue,) in ready.listed})

    def pause(self) -> float:
        nothing_for = asyncio.get_running_loop().time() - self.noticed_at
        return min(max(OFTEN, nothing_for / LOOKS), SELDOM)

    def tell(self, newest: int, queues: set[int]) -> bool:
        """Whether there were news."""
        seen, self.seen = self.seen, max(newest, self.seen)
        if newest <= seen:
            return False
        self.noticed_at = asyncio.get_running_loop().time()
        self.waiters.wake(None if newest - seen > MANY else queues)
        return True

    async def opened(self) -> Session:
        if self.session is None or self.session.is_closed():
            self.session = await self.connect()
        return self.session

    def drop(self) -> None:
        if self.session is not None:
            self.session.terminate()

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        self.drop()


class Watch(Silence):
    """Whoever waits is told by a lookout."""

    @property
    def longest_wait(self) -> float:
        return HEARING

    def __init__(self, connect: Callable[[], Awaitable[Session]]) -> None:
        super().__init__()
        self.lookout = Lookout(connect, self)

    def listen(self) -> None:
        self.lookout.begin()

    async def close(self) -> None:
        await super().close()
        await self.lookout.close()
