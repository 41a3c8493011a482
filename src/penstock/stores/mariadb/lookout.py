"""Notices what other processes published: the server itself looks, every few milliseconds, and at
once when somebody rings.

Only while somebody waits, and less often when nothing has come for long. Whatever else may have
become ready is looked for now and then.
"""

import asyncio
from collections.abc import Awaitable, Callable

from asyncmy.errors import MySQLError

from penstock.errors import StoreError
from penstock.stores.mariadb.bell import SILENT, Bell
from penstock.stores.mariadb.session import Outcome, Session
from penstock.stores.mariadb.statement import Raw, text_of
from penstock.stores.mariadb.trouble import ERRORS, number_of
from penstock.stores.wake import HEARING, Silence

# Seconds between two looks of the server, and for how long it looks in one call.
OFTEN, SELDOM, CALL = 0.002, 0.02, 0.25
# Looks in the time that nothing has come for.
LOOKS = 500
AFTER_TROUBLE = 1.0
# The server's word for a sleep that was ended; and looks after that, while it is committed.
INTERRUPTED, SOON = 1317, 5
# Of more news at once nobody is told one by one.
MANY = 1_000


class Lookout:
    """One session of its own, opened when somebody waits for the first time."""

    def __init__(
        self, connect: Callable[[], Awaitable[Session]], waiters: Silence, bell: Bell
    ) -> None:
        self.connect = connect
        self.bell = bell
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
        session, wanted, pause = await self.opened(), self.waiters.wanted, self.pause()
        looking = self.looking(wanted, max(1, int(CALL / pause)), pause)
        try:
            found = await session.send(*self.bell.listen(wanted), looking, SILENT)
        except MySQLError as error:
            if number_of(error) != INTERRUPTED:
                raise
            found = await self.look_unheard(session, wanted)
        newest, queues = [each.listed for each in found if each.rows is not None]
        self.tell(newest[0][0], {queue for (queue,) in queues})
        # Those that were woken go first.
        await asyncio.sleep(0)

    async def look_unheard(self, session: Session, wanted: frozenset[int]) -> list[Outcome]:
        """Or bells that never end would let it see nothing."""
        while True:
            try:
                return await session.send(SILENT, self.looking(wanted, SOON, OFTEN))
            except MySQLError as error:
                if number_of(error) != INTERRUPTED:
                    raise

    def looking(self, wanted: frozenset[int], looks: int, pause: float) -> str:
        return text_of(
            "look", looks=looks, pause=pause, seen=self.seen,
            news=Raw(text_of("queues_of_news", seen=self.seen, most=MANY)),
            ready=Raw(text_of("ready_queues", queues=sorted(wanted))),
        )  # fmt: skip

    def pause(self) -> float:
        nothing_for = asyncio.get_running_loop().time() - self.noticed_at
        return min(max(OFTEN, nothing_for / LOOKS), SELDOM)

    def tell(self, newest: int, queues: set[int]) -> None:
        seen, self.seen = self.seen, max(newest, self.seen)
        if newest > seen:
            self.noticed_at = asyncio.get_running_loop().time()
        self.waiters.wake(None if newest - seen > MANY else queues)

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

    def __init__(self, connect: Callable[[], Awaitable[Session]], bell: Bell) -> None:
        super().__init__()
        self.lookout = Lookout(connect, self, bell)

    def listen(self) -> None:
        self.lookout.begin()

    async def close(self) -> None:
        await super().close()
        await self.lookout.close()
