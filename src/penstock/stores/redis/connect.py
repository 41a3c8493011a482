"""Opens sessions, and detects a restarted server."""

from typing import Any

import msgspec
from redis.exceptions import MovedError

from penstock.stores.redis.connection import RedisConnection
from penstock.stores.redis.dsn import RedisDsn
from penstock.stores.redis.errors import ERRORS, translate_error
from penstock.stores.redis.scripts import load_script


class RedisConnector:
    """Checks the server's run id in every session; the first after a restart skips lost ids."""

    def __init__(self, address: RedisDsn) -> None:
        self.address = address
        self.run = ""

    async def session(self) -> RedisConnection:
        session = await self.plain_session()
        try:
            await self.meet(session)
        except MovedError as error:
            session.terminate()
            self.move(error)
            return await self.session()
        except ERRORS as error:
            session.terminate()
            raise translate_error(error, self.address.where) from error
        except BaseException:
            session.terminate()
            raise
        return session

    async def plain_session(self) -> RedisConnection:
        session = RedisConnection(self.address.connection())
        try:
            await session.open()
        except ERRORS as error:
            session.terminate()
            raise translate_error(error, self.address.where) from error
        except BaseException:
            session.terminate()
            raise
        return session

    def move(self, error: MovedError) -> None:
        """Moves to the cluster shard that has the store."""
        options = self.address.options | {"host": error.host or self.address.options["host"]}
        options["port"] = error.port
        self.address = msgspec.structs.replace(self.address, options=options)

    async def meet(self, session: RedisConnection) -> None:
        run = read_reply(await session.ask("INFO", "server")).get("run_id", "")
        if run != self.run:
            meet = load_script("meet")
            keys = [self.address.key(name) for name in meet.keys]
            doubtful = "1" if self.address.durability == "fast" else "0"
            await session.run(meet, keys, ["", run, doubtful])
            self.run = run


def read_reply(text: Any) -> dict[str, str]:
    """Parses the reply of INFO."""
    lines = str(text, "utf-8", "replace").splitlines() if isinstance(text, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)
