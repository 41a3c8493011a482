"""Listens for notices that scripts publish."""

from collections.abc import Awaitable, Callable

from penstock.errors import StoreError
from penstock.stores.notifier import Listener
from penstock.stores.redis.connection import RedisConnection
from penstock.stores.redis.errors import ERRORS

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
