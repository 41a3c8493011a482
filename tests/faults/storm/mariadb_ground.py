"""A storm on MariaDB: a server that is killed, and a network that fails, before half of all."""

import asyncio
from contextlib import closing, suppress
from typing import Any, Self

import pymysql

from tests.checker import Plan, Recorder
from tests.faults.storm.ground import Deed, Weather
from tests.faults.storm.mariadb import EFFECT
from tests.faults.storm.outages import Outages
from tests.faults.storm.server_ground import ServerGround
from tests.faults.storm.strikes import SMALL, Kind, Strike
from tests.servers.mariadb import MariaDB, place
from tests.servers.redis import Redis
from tests.servers.server import Unavailable

# A line of the server's log that no fault of ours explains.
DAMAGE = ("corrupt", "Assertion", "signal 11", "signal 6")
TABLES = ("message", "history", "ready", "scheduled", "lease", "dead", "dedup", "head", "name")
VICTIMS = """
SELECT id FROM information_schema.processlist
WHERE user = 'penstock' AND id <> connection_id() ORDER BY rand() LIMIT 3
"""
WEATHER = Weather(
    # Half of all are never cut off: only a server that is down, or rows that somebody holds,
    # excuse a late reclaim.
    Plan(
        ("kill", "stop", "blackout", "crash", "hang", "terminate", "cut_before", "cut_after",
         "delay", "half_open", "refuse"),
        excuses=("cut",),
        fault_shadow=3.0,
    ),
    {
        "snapshot": (0.1,),
        "uncommitted": (0.3, 0.65),
        "producers": (0.35,),
        "crash": (0.2, 0.45, 0.88),
        "rows": (0.55,),
        "blackout": (0.65,),
        "hang": (0.95,),
        "terminate": (0.15, 0.5, 0.8),
        "cut_before": (0.12, 0.4, 0.7),
        "cut_after": (0.18, 0.28, 0.6, 0.85),
        "delay": (0.25, 0.82),
        "half_open": (0.38, 0.72),
        "refuse": (0.52,),
        "silence": (0.22, 0.58),
    },
    # A server that is down or does not answer, and rows that somebody holds.
    frozenset({"StoreBusy", "StoreUnreachable", "OutcomeUnknown"}),
    (*SMALL, "terminate", "cut_before", "cut_after"),
)  # fmt: skip


class MariadbOutages(Outages[MariaDB]):
    # Bodies travel as hexadecimal.
    requests = (b"COMMIT", b'"filling":'.hex().encode(), b"")

    def end_sessions(self) -> bool:
        try:
            with self.server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(VICTIMS)
                for (number,) in cursor.fetchall():
                    cursor.execute(f"KILL {number}")
        except (pymysql.MySQLError, OSError):
            return False
        return True


class MariadbGround(ServerGround[MariaDB]):
    """A Redis beside it carries the wake-ups of half of all."""

    weather = WEATHER
    kind = MariaDB
    tables = "penstock_"
    effect = EFFECT
    redis: Redis

    async def __aenter__(self) -> Self:
        self.redis = await asyncio.to_thread(Redis)
        return await super().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        await asyncio.to_thread(self.redis.close)

    @property
    def urls(self) -> tuple[str, ...]:
        own, cut_off = super().urls
        return own, f"{cut_off}&wake={self.redis.url()}"

    def deeds(self, recorder: Recorder) -> dict[Kind, Deed]:
        outages = MariadbOutages(self.server, self.proxy, recorder)
        return outages.deeds | {"silence": self.silence}

    async def silence(self, strike: Strike) -> None:
        await asyncio.to_thread(self.redis.kill)
        await asyncio.sleep(strike.length)
        # Somebody else may have its port by now: then it stays away.
        with suppress(Unavailable):
            await asyncio.to_thread(self.redis.start)

    def damages(self) -> list[str]:
        lines = self.server.log.splitlines()
        damages = [line for line in lines if any(word in line for word in DAMAGE)]
        checked = self.ask("CHECK TABLE " + ", ".join(f"penstock_{name}" for name in TABLES))
        return [*damages, *(str(row) for row in checked if row[-1] != "OK"), *self.halves()]

    def ask(self, statement: str) -> list[Any]:
        own = pymysql.connect(**place(self.url), autocommit=True)
        with closing(own), own.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
