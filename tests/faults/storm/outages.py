"""What befalls a PostgreSQL server, and the network between it and its clients."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from penstock.testing.checker import Recorder
from tests.faults.storm.ground import Deed
from tests.faults.storm.strikes import Kind, Strike
from tests.servers.postgres import Postgres
from tests.servers.processes import kill
from tests.servers.proxy import Proxy
from tests.servers.server import Unavailable

SERVER = "server"
TERMINATE = """
SELECT pg_terminate_backend(pid) FROM (
    SELECT pid FROM pg_stat_activity
    WHERE application_name = 'penstock' ORDER BY random() LIMIT 3) AS victims
"""
# The end of a transaction, a body that is published, or any request at all.
REQUESTS = (b"COMMIT", b'"filling":', b"")
DELAY = 0.3


def send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Outages:
    def __init__(self, server: Postgres, proxy: Proxy, recorder: Recorder) -> None:
        self.server = server
        self.proxy = proxy
        self.recorder = recorder
        self.turn = asyncio.Lock()
        self.deeds: dict[Kind, Deed] = {
            "backend": self.kill_backend,
            "crash": self.crash,
            "orphans": self.orphan,
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

    async def kill_backend(self, strike: Strike) -> None:
        """The server ends all the others too, and recovers."""
        async with self.down("backend"):
            backends = await asyncio.to_thread(lambda: self.server.backends)
            if backends:
                await asyncio.to_thread(kill, random.choice(backends))
            await self.recovered()

    async def recovered(self) -> None:
        while True:
            if await self.asked("SELECT 1"):
                return
            await asyncio.sleep(0.1)

    async def crash(self, strike: Strike) -> None:
        async with self.down("crash"):
            await asyncio.to_thread(self.server.kill)
            await asyncio.to_thread(self.server.start)

    async def orphan(self, strike: Strike) -> None:
        """Who works at that moment goes on without a postmaster, until it next waits."""
        async with self.down("orphans"):
            await asyncio.to_thread(self.server.kill_postmaster)
            await asyncio.sleep(strike.length)
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
        if await self.asked(TERMINATE):
            self.recorder.fault("terminate", SERVER)

    async def asked(self, statement: str) -> bool:
        try:
            await asyncio.to_thread(self.server.execute, statement)
        except Unavailable:
            return False
        return True

    async def cut_before(self, strike: Strike) -> None:
        await self.cut(strike, [self.proxy.cut_before_request(each) for each in REQUESTS])

    async def cut_after(self, strike: Strike) -> None:
        await self.cut(strike, [self.proxy.cut_after_request(each) for each in REQUESTS])

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
