"""Runs scripts and commands on pooled connections, with time limits."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from redis.exceptions import MovedError

from penstock.errors import NotYet
from penstock.model.documents import acting
from penstock.store import Capabilities, Clock
from penstock.stores.redis.connect import RedisConnector
from penstock.stores.redis.connection import RedisConnection, RedisPool
from penstock.stores.redis.dsn import RedisDsn
from penstock.stores.redis.errors import ERRORS, translate_error
from penstock.stores.redis.notifier import RedisNotifier
from penstock.stores.redis.scripts import load_script
from penstock.stores.server_handle import ServerHandle

T = TypeVar("T")
encode = msgspec.json.Encoder().encode


class RedisDatabase(ServerHandle):
    def __init__(self, address: RedisDsn, clock: Clock | None) -> None:
        super().__init__(address.where)
        self.address = address
        self.clock = clock
        self.capabilities = Capabilities("redis", address.durability)
        self.connector = RedisConnector(address)
        self.pool = RedisPool(self.connector.session, address.pool_size, 5.0)
        self.waiters = RedisNotifier(self.connector.session, address.key("fact") + b":wake")
        self.keys: dict[str, list[bytes]] = {}

    async def let_go(self) -> None:
        await self.waiters.close()
        await self.pool.close()

    async def backup(self, path: str) -> None:
        raise NotYet(f"{self.where}: back it up with redis-cli --rdb, which needs no downtime")

    async def run(self, verb: str, *arguments: Any) -> Any:
        """Runs one script, which is atomic."""
        found = load_script(verb)
        keys = self.keys.get(verb)
        if keys is None:
            keys = self.keys[verb] = [self.address.key(name) for name in found.keys]
        words = [self.first_word("act" in found.keys), *arguments]
        reply = await self.call(lambda session: session.run(found, keys, words), found.writes)
        return self.woken(*reply) if found.wakes else reply

    def first_word(self, administrative: bool) -> Any:
        """Encodes the first argument: a test's time, and the audit entry, if any."""
        now = "" if self.clock is None else self.clock()
        act = acting.get() if administrative else None
        return now if act is None else b"%s|%s" % (str(now).encode(), encode(act))

    async def call(self, do: Callable[[RedisConnection], Awaitable[T]], writes: bool = False) -> T:
        self.refuse_closed()
        try:
            async with self.pool.use() as session:
                return await do(session)
        except MovedError as error:
            # The script did not run: the store has moved to another shard.
            self.connector.move(error)
            self.pool.drop_idle()
            return await self.call(do, writes)
        except ERRORS as error:
            raise translate_error(error, self.where, sent=writes) from error

    def woken(self, reply: Any, queues: bytes) -> Any:
        """Wakes local waiters, unless the listener receives the notice anyway."""
        if queues and not self.waiters.hears:
            self.waiters.wake(map(int, queues.split(b",")))
        return reply

    async def ask(self, command: str, key: str, *words: Any, writes: bool = False) -> Any:
        """Runs a plain command on one key."""
        name = self.address.key(key)
        return await self.call(lambda session: session.ask(command, name, *words), writes)

    async def pairs(self, key: str) -> dict[bytes, bytes]:
        flat = await self.ask("HGETALL", key)
        return dict(zip(flat[::2], flat[1::2], strict=True))
