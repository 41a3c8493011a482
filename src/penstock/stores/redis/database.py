"""Runs scripts and commands on pooled connections, with time limits, and notifies consumers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from redis.exceptions import MovedError

from penstock.errors import StoreClosed, StoreError
from penstock.model.documents import acting
from penstock.model.message import Moment
from penstock.retry_policies import MOVED, Retries
from penstock.store import Capabilities, Clock
from penstock.stores.notifier import Listener
from penstock.stores.redis.connection import (
    CALL_TIMEOUT_S,
    RedisConnection,
    RedisConnector,
    RedisDsn,
    RedisPool,
)
from penstock.stores.redis.errors import ERRORS, translate_error
from penstock.stores.redis.scripts import load_script

T = TypeVar("T")
encode = msgspec.json.Encoder().encode


class RedisDatabase:
    def __init__(self, address: RedisDsn, clock: Clock | None) -> None:
        self.where = address.where
        self.address = address
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self.clock = clock
        self.capabilities = Capabilities("redis", address.durability)
        self.connector = RedisConnector(address)
        self.pool = RedisPool(self.connector.session, address.pool_size, CALL_TIMEOUT_S)
        self.notifier = RedisNotifier(self.connector.session, address.key("fact") + b":wake")
        self.keys: dict[str, list[bytes]] = {}

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            # If the loop is closed, its sockets are closed with it.
            if not self.loop.is_closed():
                await self.notifier.close()
                await self.pool.close()

    def refuse_closed(self) -> None:
        if self.closed:
            raise StoreClosed(f"{self.where} is closed")

    async def now(self) -> Moment:
        if self.clock is not None:
            return self.clock()
        seconds, micros = map(int, await self.call(lambda session: session.ask("TIME")))
        return seconds * 1_000_000 + micros

    async def run(self, verb: str, *arguments: Any) -> Any:
        """Runs one script, which is atomic."""
        found = load_script(verb)
        keys = self.keys.get(verb)
        if keys is None:
            keys = self.keys[verb] = [self.address.key(name) for name in found.keys]
        words = [self.first_word("act" in found.keys), *arguments]
        reply = await self.call(lambda session: session.run(found, keys, words), found.writes)
        return self.wake_local(*reply) if found.wakes else reply

    def first_word(self, administrative: bool) -> Any:
        """Encodes the first argument: a test's time, and the audit entry, if any."""
        now = "" if self.clock is None else self.clock()
        act = acting.get() if administrative else None
        return now if act is None else b"%s|%s" % (str(now).encode(), encode(act))

    async def call(self, do: Callable[[RedisConnection], Awaitable[T]], writes: bool = False) -> T:
        self.refuse_closed()
        retries: Retries | None = None
        while True:
            try:
                async with self.pool.use() as session:
                    return await do(session)
            except ERRORS as error:
                # The script did not run: the store has moved to another shard.
                if isinstance(error, MovedError):
                    self.connector.move(error)
                    self.pool.drop_idle()
                    retries = retries or MOVED.begin()
                    if await retries.again():
                        continue
                raise translate_error(error, self.where, sent=writes) from error

    def wake_local(self, reply: Any, queues: bytes) -> Any:
        """Wakes local waiters, unless the listener receives the notice anyway."""
        if queues and not self.notifier.hears:
            self.notifier.wake(map(int, queues.split(b",")))
        return reply

    async def ask(self, command: str, key: str, *words: Any, writes: bool = False) -> Any:
        """Runs a plain command on one key."""
        name = self.address.key(key)
        return await self.call(lambda session: session.ask(command, name, *words), writes)

    async def pairs(self, key: str) -> dict[bytes, bytes]:
        flat = await self.ask("HGETALL", key)
        return dict(zip(flat[::2], flat[1::2], strict=True))


PING_AFTER_S = 5.0


class RedisNotifier(Listener):
    """Uses its own connection, opened for the first waiter."""

    errors = (*ERRORS, StoreError)

    def __init__(self, connect: Callable[[], Awaitable[RedisConnection]], channel: bytes) -> None:
        super().__init__()
        self.connect = connect
        self.channel = channel
        self.session: RedisConnection | None = None

    async def listen_once(self) -> None:
        await self.drop()
        self.session = await self.connect()
        await self.session.ask("SUBSCRIBE", self.channel)
        self.hears = True
        # Earlier notices were missed, so wake all waiters.
        self.wake(None)
        while True:
            said = await self.session.connection.read_response(timeout=PING_AFTER_S)
            # A lost connection is not reported, so ping it.
            kind, *_, notice = said or await self.session.ask("PING")
            if kind == b"message":
                self.handle_notice(notice.decode())

    async def drop(self) -> None:
        if self.session is not None:
            self.session.terminate()
            self.session = None
