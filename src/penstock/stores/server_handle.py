"""Base of server stores: open and closed state."""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Self

from penstock.errors import StoreClosed


class ServerHandle(ABC):
    def __init__(self, where: str) -> None:
        self.where = where
        self.loop = asyncio.get_running_loop()
        self.closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.close()

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            # If the loop is closed, its sockets are closed with it.
            if not self.loop.is_closed():
                await self.let_go()

    @abstractmethod
    async def let_go(self) -> None:
        """Closes its connections."""

    def refuse_closed(self) -> None:
        if self.closed:
            raise StoreClosed(f"{self.where} is closed")
