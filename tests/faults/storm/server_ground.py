"""A storm on a server: it is killed, and a network that fails is before half of all."""

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from tests.faults.storm.fleet import Child
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

PLACES = ("ready", "scheduled", "lease", "dead")
HOLDERS = ("snapshot", "uncommitted", "rows")
# Few connections: a process that needs more has to wait for them.
OPTIONS = "?pool_size=4"
# Those of the other consumers are completed without an effect.
HALVES = """
SELECT e.id, 'an effect without its completion' FROM {effect} AS e
LEFT JOIN {tables}history AS h ON h.id = e.id AND h.fence = e.fence AND h.verb = 'complete'
WHERE h.id IS NULL
UNION ALL
SELECT h.id, 'a completion without its effect' FROM {tables}history AS h
JOIN {tables}message AS m ON m.id = h.id AND m.type = 'book'
LEFT JOIN {effect} AS e ON e.id = h.id AND e.fence = h.fence
WHERE h.verb = 'complete' AND h.consumer NOT LIKE 'consumer-%' AND e.id IS NULL
"""

S = TypeVar("S", Postgres, MariaDB)


class ServerGround(ABC, Generic[S]):
    """The processes of odd slots reach the server by way of a proxy."""

    kind: type[S]
    # What the names of our tables begin with, and the one of an application.
    tables: str
    effect: str

    server: S
    url: str

    def __init__(self, directory: Path) -> None:
        self.log = directory / "server.log"

    async def __aenter__(self) -> Self:
        self.server = await asyncio.to_thread(self.kind)
        self.url = await asyncio.to_thread(self.server.create_database)
        self.ask(f"CREATE TABLE {self.effect} (id bigint, fence bigint)")
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

    def seen(self, child: Child) -> list[str]:
        if child.role not in HOLDERS:
            return []
        return [child.role, "cut"] if child.role == "rows" else [child.role]

    def heal(self) -> None:
        self.proxy.heal()

    def places(self) -> dict[int, tuple[str, ...]]:
        found: dict[int, list[str]] = defaultdict(list)
        for place in PLACES:
            for (id,) in self.ask(f"SELECT id FROM {self.tables}{place}"):
                found[id].append(place)
        return {id: tuple(tables) for id, tables in found.items()}

    def halves(self) -> list[str]:
        """Effects and completions that are one, and yet are not."""
        rows = self.ask(HALVES.format(effect=self.effect, tables=self.tables))
        return [f"message {id}: {what}" for id, what in rows]

    @abstractmethod
    def ask(self, statement: str) -> list[Any]: ...
