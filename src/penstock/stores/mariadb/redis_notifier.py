"""Wakes consumers of other processes through Redis pub/sub (`wake=redis://...`)."""

from collections.abc import Awaitable, Callable
from hashlib import blake2b

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from penstock.errors import InvalidInput
from penstock.store import Check
from penstock.stores.mariadb.connection import MariaConnection
from penstock.stores.mariadb.notifier import LocalWakeups, MariaPoller
from penstock.stores.notifier import POLL_INTERVAL_LISTENING_S, Notifier
from penstock.stores.urls import redact_url

# Time limit of a Redis call, in seconds.
CALL_TIMEOUT_S = 1.0
# Seconds of silence after which the connection is pinged.
PING_AFTER_S = 5.0


class RedisPubSub(Notifier):
    """Wakes waiters through Redis pub/sub; falls back to the poller while Redis is down."""

    # uvloop raises RuntimeError for a closed connection.
    errors = (RedisError, OSError, TimeoutError, RuntimeError)

    @property
    def longest_wait(self) -> float:
        return POLL_INTERVAL_LISTENING_S

    def __init__(
        self,
        connect: Callable[[], Awaitable[MariaConnection]],
        url: str,
        seal: str,
        wakeups: LocalWakeups,
    ) -> None:
        super().__init__()
        self.poller = MariaPoller(connect, self, wakeups)
        self.redis = make_client(url)
        # Stores may share a Redis; the digest keeps the secret out of the channel name.
        self.channel = f"penstock:{blake2b(seal.encode(), digest_size=8).hexdigest()}"

    def listen(self) -> None:
        super().listen()
        if not self.hears:
            self.poller.begin()

    async def send(self, notice: str) -> None:
        await self.redis.publish(self.channel, notice)

    async def listen_once(self) -> None:
        async with self.redis.pubsub() as channel:
            await channel.subscribe(self.channel)
            while True:
                message = await channel.get_message(timeout=PING_AFTER_S)
                if message is None:
                    await channel.ping()
                    message = await channel.get_message(timeout=CALL_TIMEOUT_S)
                self.take(message)

    def take(self, message: dict[str, str] | None) -> None:
        if message is None:
            raise TimeoutError("Redis does not answer")
        if message["type"] == "subscribe":
            self.hears = True
            # Earlier notices were missed, so wake all waiters.
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
        """Does nothing: the client reconnects on its own."""

    async def close(self) -> None:
        await super().close()
        await self.poller.close()
        await self.redis.aclose()


def make_client(url: str) -> Redis:
    """Creates a client without retries; the listener reconnects."""
    try:
        return Redis.from_url(
            url,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=CALL_TIMEOUT_S,
            socket_timeout=CALL_TIMEOUT_S,
        )
    except ValueError:
        # The driver's message may contain a part of the password.
        raise InvalidInput(
            f"store url: wake={redact_url(url)} cannot be read: expected"
            " redis://[user:password@]host:port/database"
        ) from None
