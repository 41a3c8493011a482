"""A connection that loads scripts on demand and that a forked child does not close."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from hiredis import pack_command
from redis.asyncio.connection import Connection
from redis.exceptions import NoScriptError

from penstock.stores import pool
from penstock.stores.redis.dsn import DEADLINE
from penstock.stores.redis.errors import is_connection_gone
from penstock.stores.redis.scripts import Script


class RedisConnection:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.process = os.getpid()

    async def open(self) -> None:
        connect: Callable[[], Awaitable[None]] = self.connection.connect
        async with asyncio.timeout(DEADLINE):
            await connect()

    async def ask(self, *words: Any) -> Any:
        async with asyncio.timeout(DEADLINE):
            try:
                await self.connection.send_packed_command(pack_command(words), check_health=False)
            except RuntimeError as error:
                # uvloop raises it for a closed connection.
                raise ConnectionResetError(str(error)) from error
            return await self.connection.read_response()

    async def run(self, script: Script, keys: list[bytes], arguments: list[Any]) -> Any:
        count = len(keys)
        try:
            return await self.ask(b"EVALSHA", script.digest, count, *keys, *arguments)
        except NoScriptError:
            # A restarted server has lost its scripts.
            return await self.ask(b"EVAL", script.text, count, *keys, *arguments)

    def is_closed(self) -> bool:
        reader, writer = self.connection._reader, self.connection._writer
        if reader is None or writer is None:
            return True
        return reader.at_eof() or reader.exception() is not None or writer.is_closing()

    def terminate(self) -> None:
        """Closes the socket, unless this is a forked child: the parent still uses it."""
        writer = self.connection._writer
        if writer is not None and self.process == os.getpid():
            writer.transport.abort()
        self.connection._reader = self.connection._writer = None


class RedisPool(pool.ConnectionPool[RedisConnection]):
    def is_harmless(self, error: BaseException) -> bool:
        return isinstance(error, Exception) and not is_connection_gone(error)

    async def leave(self, connection: RedisConnection) -> None:
        connection.terminate()
