"""A storm on PostgreSQL: a server that is killed, and a network that fails, before half of all."""

from typing import Any

import psycopg

from tests.checker import Plan, Recorder
from tests.faults.storm.ground import Deed, Weather
from tests.faults.storm.postgres import EFFECT
from tests.faults.storm.postgres_outages import PostgresOutages
from tests.faults.storm.server_ground import ServerGround
from tests.faults.storm.strikes import SMALL, Kind
from tests.servers.postgres import Postgres

# A message in the server's log that no fault of ours explains.
DAMAGE = ("PANIC:", "could not read", "corrupt", "invalid page")
WEATHER = Weather(
    # Half of all are never cut off: only a server that is down, or rows that somebody holds,
    # excuse a late reclaim.
    Plan(
        ("kill", "stop", "blackout", "backend", "crash", "orphans", "hang", "terminate",
         "cut_before", "cut_after", "delay", "half_open", "refuse"),
        excuses=("cut",),
        fault_shadow=3.0,
    ),
    {
        "snapshot": (0.1,),
        "backend": (0.2, 0.75),
        "uncommitted": (0.3, 0.65),
        "producers": (0.35,),
        "crash": (0.45,),
        "rows": (0.55,),
        "blackout": (0.65,),
        "orphans": (0.88,),
        "hang": (0.95,),
        "terminate": (0.15, 0.5, 0.8),
        "cut_before": (0.12, 0.4, 0.7),
        "cut_after": (0.18, 0.28, 0.6, 0.85),
        "delay": (0.25, 0.82),
        "half_open": (0.38, 0.72),
        "refuse": (0.52,),
    },
    # A server that is down or does not answer, and rows that somebody holds.
    frozenset({"StoreBusy", "StoreUnreachable", "OutcomeUnknown"}),
    (*SMALL, "terminate", "cut_before", "cut_after"),
)  # fmt: skip


class PostgresGround(ServerGround[Postgres]):
    weather = WEATHER
    kind = Postgres
    tables = "penstock."
    effect = EFFECT

    def deeds(self, recorder: Recorder) -> dict[Kind, Deed]:
        return PostgresOutages(self.server, self.proxy, recorder).all

    def damages(self) -> list[str]:
        lines = self.server.log.splitlines()
        damages = [line for line in lines if any(word in line for word in DAMAGE)]
        return damages + self.halves()

    def ask(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
