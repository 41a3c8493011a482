"""Wakes consumers of other processes through the server; they poll as well.

A waiter holds a named lock of its queue and sleeps in the server. A publisher asks who holds the
lock and kills that query. A user may do so to its own sessions without extra privileges.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from hashlib import blake2b

from asyncmy.errors import MySQLError

from penstock.errors import StoreError
from penstock.retry_policies import LOOP_RETRY_DELAY_S
from penstock.stores.mariadb.connection import MariaConnection, StatementOutcome
from penstock.stores.mariadb.errors import ERRORS, get_error_number
from penstock.stores.mariadb.statement import RawSql, fill_statement, to_literal
from penstock.stores.notifier import POLL_INTERVAL_LISTENING_S, NullNotifier

# Queues notified at once, and queues one session listens to.
MAX_NOTIFIED_QUEUES, MAX_HEARD_QUEUES = 8, 64
# A queue is notified at most once in this many seconds.
MIN_RING_INTERVAL_S = 0.005
SILENT = fill_statement("listen", locks=RawSql("release_all_locks()"))


class LocalWakeups:
    def __init__(self, seal: str) -> None:
        # Lock names are shared by all stores of a server; the digest keeps the secret out of them.
        self.store = blake2b(seal.encode(), digest_size=8).hexdigest()
        self.rung: set[int] = set()
        self.began = 0.0

    def lock(self, queue_id: int) -> str:
        return f"penstock:{self.store}:{queue_id}"

    def listen(self, queue_ids: Collection[int]) -> list[str]:
        locks = [
            f"get_lock({to_literal(self.lock(each))}, 0)"
            for each in sorted(queue_ids)[:MAX_HEARD_QUEUES]
        ]
        return [fill_statement("listen", locks=RawSql(", ".join(locks)))] if locks else []

    def ring(self, queue_ids: Collection[int]) -> list[str]:
        now = time.monotonic()
        if now - self.began > MIN_RING_INTERVAL_S:
            self.rung, self.began = set(), now
        queues = sorted(set(queue_ids) - self.rung)[:MAX_NOTIFIED_QUEUES]
        self.rung.update(queues)
        return [fill_statement("ring", lock=self.lock(each)) for each in queues]


# Seconds between two polls inside the server, and the length of one call.
MIN_POLL_S, MAX_POLL_S, CALL_S = 0.002, 0.02, 0.25
# The pause between polls is the idle time divided by this, between MIN_POLL_S and MAX_POLL_S.
POLLS_PER_LOOK = 500
# Error number of an interrupted call; polls after it, until the commit is visible.
INTERRUPTED, SOON = 1317, 5
# Above this many messages, all waiters are woken.
MAX_NEWS = 1_000


class MariaPoller:
    """Polls inside the server, on its own session, opened for the first waiter."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[MariaConnection]],
        waiters: NullNotifier,
        wakeups: LocalWakeups,
    ) -> None:
        self.connect = connect
        self.wakeups = wakeups
        self.waiters = waiters
        self.session: MariaConnection | None = None
        self.task: asyncio.Task[None] | None = None
        # The last message seen, so that one published without waiters wakes the next at once.
        self.seen = 0
        self.noticed_at = 0.0

    def begin(self) -> None:
        """Starts polling when the first waiter arrives."""
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self.look_while_awaited())

    async def look_while_awaited(self) -> None:
        try:
            while self.waiters.waiting and not self.waiters.hears:
                try:
                    await self.look()
                except (StoreError, *ERRORS):
                    self.drop()
                    await asyncio.sleep(LOOP_RETRY_DELAY_S)
        finally:
            self.task = None

    async def look(self) -> None:
        session, wanted, pause = await self.ensure_session(), self.waiters.wanted, self.pause()
        looking = self.make_look_statement(wanted, max(1, int(CALL_S / pause)), pause)
        try:
            found = await session.send(*self.wakeups.listen(wanted), looking, SILENT)
        except MySQLError as error:
            if get_error_number(error) != INTERRUPTED:
                raise
            found = await self.look_unheard(session, wanted)
        newest, queues = [each.row_list for each in found if each.rows is not None]
        self.notify(newest[0][0], {queue for (queue,) in queues})
        # Lets the woken consumers run first.
        await asyncio.sleep(0)

    async def look_unheard(
        self, session: MariaConnection, wanted: frozenset[int]
    ) -> list[StatementOutcome]:
        """Polls without listening, or constant notices would hide other messages."""
        while True:
            try:
                return await session.send(
                    SILENT, self.make_look_statement(wanted, SOON, MIN_POLL_S)
                )
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
        return min(max(MIN_POLL_S, nothing_for / POLLS_PER_LOOK), MAX_POLL_S)

    def notify(self, newest: int, queues: set[int]) -> None:
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
    """Wakes waiters by a poller inside the server."""

    @property
    def longest_wait(self) -> float:
        return POLL_INTERVAL_LISTENING_S

    def __init__(
        self, connect: Callable[[], Awaitable[MariaConnection]], wakeups: LocalWakeups
    ) -> None:
        super().__init__()
        self.poller = MariaPoller(connect, self, wakeups)

    def listen(self) -> None:
        self.poller.begin()

    async def close(self) -> None:
        await super().close()
        await self.poller.close()
