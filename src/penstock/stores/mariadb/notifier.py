"""Wakes who waits on the same server at once. Only ever a hint: it looks by itself as well.

Whoever waits for a queue holds a lock of its name, and sleeps; whoever publishes asks the server
who holds it, and ends that sleep. A user may do that to its own sessions, and needs no right to.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from hashlib import blake2b

from asyncmy.errors import MySQLError
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from penstock.errors import InvalidInput, StoreError
from penstock.store import Check
from penstock.stores.mariadb.connection import MariaConnection, StatementOutcome
from penstock.stores.mariadb.errors import ERRORS, get_error_number
from penstock.stores.mariadb.statement import RawSql, fill_statement, to_literal
from penstock.stores.notifier import POLL_INTERVAL_LISTENING_S, Notifier, NullNotifier

# Queues that are rung for at once, and that are listened to.
RUNG, HEARD = 8, 64
# Seconds in which a queue is rung for once.
MIN_RING_INTERVAL_S = 0.005
SILENT = fill_statement("listen", locks=RawSql("release_all_locks()"))


class LocalWakeups:
    def __init__(self, seal: str) -> None:
        # Stores share the names of a server, and the seal is not for it.
        self.store = blake2b(seal.encode(), digest_size=8).hexdigest()
        self.rung: set[int] = set()
        self.began = 0.0

    def lock(self, queue_id: int) -> str:
        return f"penstock:{self.store}:{queue_id}"

    def listen(self, queue_ids: Collection[int]) -> list[str]:
        locks = [
            f"get_lock({to_literal(self.lock(each))}, 0)" for each in sorted(queue_ids)[:HEARD]
        ]
        return [fill_statement("listen", locks=RawSql(", ".join(locks)))] if locks else []

    def ring(self, queue_ids: Collection[int]) -> list[str]:
        now = time.monotonic()
        if now - self.began > MIN_RING_INTERVAL_S:
            self.rung, self.began = set(), now
        queues = sorted(set(queue_ids) - self.rung)[:RUNG]
        self.rung.update(queues)
        return [fill_statement("ring", lock=self.lock(each)) for each in queues]


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


# Nobody waits longer for an answer.
DEADLINE = 1.0
# After so long without a word it asks whether it would hear one.
SILENCE = 5.0


class RedisPubSub(Notifier):
    """While Redis is away a lookout does its work."""

    # The last is uvloop's word for a connection that is gone.
    errors = (RedisError, OSError, TimeoutError, RuntimeError)

    @property
    def longest_wait(self) -> float:
        return POLL_INTERVAL_LISTENING_S

    def __init__(
        self,
        connect: Callable[[], Awaitable[MariaConnection]],
        url: str,
        seal: str,
        bell: LocalWakeups,
    ) -> None:
        super().__init__()
        self.lookout = MariaPoller(connect, self, bell)
        self.redis = make_client(url)
        # Stores may share a Redis, and the seal is not for it.
        self.channel = f"penstock:{blake2b(seal.encode(), digest_size=8).hexdigest()}"

    def listen(self) -> None:
        super().listen()
        if not self.hears:
            self.lookout.begin()

    async def send(self, notice: str) -> None:
        await self.redis.publish(self.channel, notice)

    async def listen_once(self) -> None:
        async with self.redis.pubsub() as channel:
            await channel.subscribe(self.channel)
            while True:
                message = await channel.get_message(timeout=SILENCE)
                if message is None:
                    await channel.ping()
                    message = await channel.get_message(timeout=DEADLINE)
                self.take(message)

    def take(self, message: dict[str, str] | None) -> None:
        if message is None:
            raise TimeoutError("Redis does not answer")
        if message["type"] == "subscribe":
            self.hears = True
            # Whatever came before is looked for.
            self.wake(None)
        elif message["type"] == "message":
            self.handle_notice(message["data"])

    async def examine(self) -> Check:
        try:
            await self.redis.ping()
        except self.errors as error:
            text = f"Redis cannot be reached, so consumers poll: {error}"
            return Check("wake", text, False)
        return Check("wake", "Redis delivers wake-ups")

    async def drop(self) -> None:
        """The client does by itself."""

    async def close(self) -> None:
        await super().close()
        await self.lookout.close()
        await self.redis.aclose()


def make_client(url: str) -> Redis:
    """It tells of every failure at once: whoever listens begins anew by itself."""
    try:
        return Redis.from_url(
            url,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=DEADLINE,
            socket_timeout=DEADLINE,
        )
    except ValueError as error:
        raise InvalidInput(f"store url: wake={url} cannot be read: {error}") from None
