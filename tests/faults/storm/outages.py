"""What befalls a server, and the network between it and its clients."""

import asyncio
import os
import random
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

from tests.checker import Recorder
from tests.faults.storm.ground import Deed
from tests.faults.storm.strikes import Kind, Strike
from tests.servers.proxy import Proxy
from tests.servers.server import Server

S = TypeVar("S", bound=Server)
SERVER = "server"
DELAY = 0.3


def send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Outages(ABC, Generic[S]):
    # The end of a transaction, a body that is published, or any request at all.
    requests = (b"COMMIT", b'"filling":', b"")

    def __init__(self, server: S, proxy: Proxy, recorder: Recorder) -> None:
        self.server = server
        self.proxy = proxy
        self.recorder = recorder
        self.turn = asyncio.Lock()
        self.deeds: dict[Kind, Deed] = {
            "crash": self.crash,
            "hang": self.hang,
            "terminate": self.terminate,
            "cut_before": self.cut_before,
            "cut_after": self.cut_after,
            "delay": self.delay,
            "half_open": self.half_open,
            "refuse": self.refuse,
        }

    @asynccontextmanager
    async def down(self, kind: Kind) -> AsyncIterator[None]:
        """One at a time; it is up again in the end."""
        async with self.turn:
            self.recorder.fault("cut", SERVER)
            self.recorder.fault(kind, SERVER)
            yield
            self.recorder.fault("heal", SERVER)

    async def crash(self, strike: Strike) -> None:
        async with self.down("crash"):
            await asyncio.to_thread(self.server.kill)
            await asyncio.to_thread(self.server.start)

    async def hang(self, strike: Strike) -> None:
        """Connections stay, and what was sent is done long after nobody waits for it any more."""
        async with self.down("hang"):
            pids = await asyncio.to_thread(lambda: self.server.processes)
            try:
                send(signal.SIGSTOP, pids)
                await asyncio.sleep(strike.length)
            finally:
                send(signal.SIGCONT, pids)

    async def terminate(self, strike: Strike) -> None:
        """As an operator does, or a failover."""
        if await asyncio.to_thread(self.end_sessions):
            self.recorder.fault("terminate", SERVER)

    @abstractmethod
    def end_sessions(self) -> bool:
        """Some of ours. False: the server is down."""

    async def cut_before(self, strike: Strike) -> None:
        await self.cut(strike, [self.proxy.cut_before_request(each) for each in self.requests])

    async def cut_after(self, strike: Strike) -> None:
        await self.cut(strike, [self.proxy.cut_after_request(each) for each in self.requests])

    async def cut(self, strike: Strike, struck: list[asyncio.Event]) -> None:
        """Whether it hits somebody depends on what they ask for."""
        await asyncio.sleep(strike.length)
        for _ in filter(asyncio.Event.is_set, struck):
            self.recorder.fault(strike.kind, "proxy")

    async def delay(self, strike: Strike) -> None:
        self.recorder.fault("delay", "proxy")
        self.proxy.delay = DELAY
        await asyncio.sleep(strike.length)
        self.proxy.delay = 0.0

    async def half_open(self, strike: Strike) -> None:
        """Nobody is told that nothing arrives any more."""
        self.recorder.fault("half_open", "proxy")
        self.proxy.lose(*random.choice((("requests",), ("answers",), ())))
        await asyncio.sleep(strike.length)
        self.proxy.heal()

    async def refuse(self, strike: Strike) -> None:
        self.recorder.fault("refuse", "proxy")
        self.proxy.refuse()
        self.proxy.cut()
        await asyncio.sleep(strike.length)
        await self.proxy.accept()
