"""Notices what other processes published: the server itself looks, every few milliseconds, and at
once when somebody rings.

Only while somebody waits, and less often when nothing has come for long. Whatever else may have
become ready is looked for now and then.
"""

import asyncio
from collections.abc import Awaitable, Callable

from asyncmy.errors import MySQLError

from penstock.errors import StoreError
from penstock.stores.mariadb.bell import SILENT, LocalWakeups
from penstock.stores.mariadb.session import MariaConnection, StatementOutcome
from penstock.stores.mariadb.statement import RawSql, fill_statement
from penstock.stores.mariadb.trouble import ERRORS, get_error_number
from penstock.stores.wake import POLL_INTERVAL_LISTENING_S, NullNotifier

# Seconds between two looks of the server, and for how long it looks in one call.
OFTEN, SELDOM, CALL = 0.002, 0.02, 0.25
# Looks in the time that nothing has come for.
POLLS_PER_LOOK = 500
RETRY_DELAY_S = 1.0
# The server's word for a sleep that was ended; and looks after that, while it is committed.
INTERRUPTED, SOON = 1317, 5
# Of more news at once nobody is told one by one.
MAX_NEWS = 1_000


class MariaPoller:
    """One session of its own, opened when somebody waits for the first time."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[MariaConnection]],
        waiters: NullNotifier,
        bell: LocalWakeups,
    ) -> None:
        self.connect = connect
        self.bell = bell
        self.waiters = waiters
        self.session: MariaConnection | None = None
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
                    await asyncio.sleep(RETRY_DELAY_S)
        finally:
            self.task = None

    async def look(self) -> None:
        session, wanted, pause = await self.ensure_session(), self.waiters.wanted, self.pause()
        looking = self.make_look_statement(wanted, max(1, int(CALL / pause)), pause)
        try:
            found = await session.send(*self.bell.listen(wanted), looking, SILENT)
        except MySQLError as error:
            if get_error_number(error) != INTERRUPTED:
                raise
            found = await self.look_unheard(session, wanted)
        newest, queues = [each.listed for each in found if each.rows is not None]
        self.tell(newest[0][0], {queue for (queue,) in queues})
        # Those that were woken go first.
        await asyncio.sleep(0)

    async def look_unheard(
        self, session: MariaConnection, wanted: frozenset[int]
    ) -> list[StatementOutcome]:
        """Or bells that never end would let it see nothing."""
        while True:
            try:
                return await session.send(SILENT, self.make_look_statement(wanted, SOON, OFTEN))
            except MySQLError as error:
                if get_error_number(error) != INTERRUPTED:
                    raise

    def make_look_statement(self, wanted: frozenset[int], looks: int, pause: float) -> str:
        return fill_statement(
            "look", looks=looks, pause=pause, seen=self.seen,
            news=RawSql(fill_statement("queues_of_news", seen=self.seen, most=MAX_NEWS)),
            ready=RawSql(fill_statement("ready_queues", queues=sorted(wanted))),
        )  # fmt: skip

    def pause(self) -> float:
        nothing_for = asyncio.get_running_loop().time() - self.noticed_at
        return min(max(OFTEN, nothing_for / POLLS_PER_LOOK), SELDOM)

    def tell(self, newest: int, queues: set[int]) -> None:
        seen, self.seen = self.seen, max(newest, self.seen)
        if newest > seen:
            self.noticed_at = asyncio.get_running_loop().time()
        self.waiters.wake(None if newest - seen > MAX_NEWS else queues)

    async def ensure_session(self) -> MariaConnection:
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


class ReadyProbe(NullNotifier):
    """Whoever waits is told by a lookout."""

    @property
    def longest_wait(self) -> float:
        return POLL_INTERVAL_LISTENING_S

    def __init__(
        self, connect: Callable[[], Awaitable[MariaConnection]], bell: LocalWakeups
    ) -> None:
        super().__init__()
        self.lookout = MariaPoller(connect, self, bell)

    def listen(self) -> None:
        self.lookout.begin()

    async def close(self) -> None:
        await super().close()
        await self.lookout.close()
