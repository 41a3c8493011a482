"""What befalls a PostgreSQL server, which is many processes."""

import asyncio
import random

from tests.faults.storm.ground import Deed
from tests.faults.storm.outages import Outages
from tests.faults.storm.strikes import Kind, Strike
from tests.servers.postgres import Postgres
from tests.servers.processes import kill
from tests.servers.server import Unavailable

TERMINATE = """
SELECT pg_terminate_backend(pid) FROM (
    SELECT pid FROM pg_stat_activity
    WHERE application_name = 'penstock' ORDER BY random() LIMIT 3) AS victims
"""


class PostgresOutages(Outages[Postgres]):
    @property
    def all(self) -> dict[Kind, Deed]:
        return self.deeds | {"backend": self.kill_backend, "orphans": self.orphan}

    async def kill_backend(self, strike: Strike) -> None:
        """The server ends all the others too, and recovers."""
        async with self.down("backend"):
            backends = await asyncio.to_thread(lambda: self.server.backends)
            if backends:
                await asyncio.to_thread(kill, random.choice(backends))
            await self.recovered()

    async def recovered(self) -> None:
        while True:
            if await asyncio.to_thread(self.asked, "SELECT 1"):
                return
            await asyncio.sleep(0.1)

    async def orphan(self, strike: Strike) -> None:
        """Who works at that moment goes on without a postmaster, until it next waits."""
        async with self.down("orphans"):
            await asyncio.to_thread(self.server.kill_postmaster)
            await asyncio.sleep(strike.length)
            await asyncio.to_thread(self.server.kill)
            await asyncio.to_thread(self.server.start)

    def end_sessions(self) -> bool:
        return self.asked(TERMINATE)

    def asked(self, statement: str) -> bool:
        try:
            self.server.execute(statement)
        except Unavailable:
            return False
        return True
