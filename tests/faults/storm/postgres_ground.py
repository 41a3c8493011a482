"""A storm on PostgreSQL: a server that is killed, and a network that fails, before half of all."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any, Self

import psycopg

from penstock.testing.checker import Plan, Recorder
from tests.faults.storm.fleet import Child
from tests.faults.storm.ground import Deed, Weather
from tests.faults.storm.outages import Outages
from tests.faults.storm.postgres import EFFECT
from tests.faults.storm.strikes import SMALL, Kind
from tests.servers.postgres import SMALL as SMALL_SERVER
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

PLACES = ("ready", "scheduled", "lease", "dead")
HOLDERS = ("snapshot", "uncommitted", "rows")
# Few connections: a process that needs more has to wait for them.
OPTIONS = "?pool_size=4"
# A message in the server's log that no fault of ours explains.
DAMAGE = ("PANIC:", "could not read", "corrupt", "invalid page")
# Those of the other consumers are completed without an effect.
HALVES = f"""
SELECT e.id, 'an effect without its completion' FROM {EFFECT} AS e
LEFT JOIN penstock.history AS h ON h.id = e.id AND h.fence = e.fence AND h.verb = 'complete'
WHERE h.id IS NULL
UNION ALL
SELECT h.id, 'a completion without its effect' FROM penstock.history AS h
JOIN penstock.message AS m ON m.id = h.id AND m.type = 'book'
LEFT JOIN {EFFECT} AS e ON e.id = h.id AND e.fence = h.fence
WHERE h.verb = 'complete' AND h.consumer NOT LIKE 'consumer-%' AND e.id IS NULL
"""
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


class PostgresGround:
    """The processes of odd slots reach the server by way of a proxy."""

    weather = WEATHER

    def __init__(self, directory: Path) -> None:
        self.log = directory / "postgres.log"

    async def __aenter__(self) -> Self:
        self.server = await asyncio.to_thread(Postgres, SMALL_SERVER)
        self.url = await asyncio.to_thread(self.server.create_database)
        self.ask(f"CREATE TABLE {EFFECT} (id bigint, fence bigint)")
        self.proxy = await Proxy(self.server.port).__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.proxy.refuse()
        self.proxy.cut()
        self.log.write_text(self.server.log)
        await asyncio.to_thread(self.server.close)

    @property
    def urls(self) -> tuple[str, ...]:
        return self.url + OPTIONS, self.proxy.url(self.url) + OPTIONS

    def deeds(self, recorder: Recorder) -> dict[Kind, Deed]:
        return Outages(self.server, self.proxy, recorder).deeds

    def seen(self, child: Child) -> list[str]:
        if child.role not in HOLDERS:
            return []
        return [child.role, "cut"] if child.role == "rows" else [child.role]

    def heal(self) -> None:
        self.proxy.heal()

    def places(self) -> dict[int, tuple[str, ...]]:
        found: dict[int, list[str]] = defaultdict(list)
        for place in PLACES:
            for (id,) in self.ask(f"SELECT id FROM penstock.{place}"):
                found[id].append(place)
        return {id: tuple(tables) for id, tables in found.items()}

    def damages(self) -> list[str]:
        lines = self.server.log.splitlines()
        damages = [line for line in lines if any(word in line for word in DAMAGE)]
        return damages + [f"message {id}: {what}" for id, what in self.ask(HALVES)]

    def ask(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
