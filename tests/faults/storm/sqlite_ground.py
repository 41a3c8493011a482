"""A storm on SQLite: one file, and the locks of whoever is stopped with them."""

import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Self

from tests.checker import Plan, Recorder
from tests.faults.storm import sqlite
from tests.faults.storm.fleet import Child
from tests.faults.storm.ground import Deed, Weather
from tests.faults.storm.strikes import Kind

PLACES = ("ready", "scheduled", "lease", "dead")


WEATHER = Weather(
    # Somebody who sweeps is always alive, so that only a blocked store excuses a late reclaim.
    Plan(("kill", "stop", "gate", "blackout"), excuses=("cut",), fault_shadow=3.0),
    {
        "gate": (0.15, 0.5, 0.8),
        "transaction": (0.25, 0.7),
        "producers": (0.4,),
        "blackout": (0.6,),
    },
    # A store that is blocked by a stopped process says so, and its callers try again.
    frozenset({"StoreBusy"}),
)


class SqliteGround:
    weather = WEATHER

    def __init__(self, directory: Path) -> None:
        self.path = sqlite.path(directory)

    @property
    def urls(self) -> tuple[str, ...]:
        return (f"sqlite:///{self.path}",)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """The file stays for whoever wants to look."""

    def deeds(self, recorder: Recorder) -> dict[Kind, Deed]:
        return {}

    def seen(self, child: Child) -> list[str]:
        found = ["gate"] if sqlite.holds_gate(self.path, child.pid) else []
        return [*found, "cut"] if sqlite.writes(self.path, child.pid) else found

    def heal(self) -> None:
        """Whoever was stopped goes on already."""

    def places(self) -> dict[int, tuple[str, ...]]:
        found: dict[int, list[str]] = defaultdict(list)
        db = sqlite3.connect(self.path)
        for place in PLACES:
            for (id,) in db.execute(f"SELECT id FROM penstock_{place}"):
                found[id].append(place)
        db.close()
        return {id: tuple(tables) for id, tables in found.items()}

    def damages(self) -> list[str]:
        db = sqlite3.connect(self.path)
        texts = [str(text) for (text,) in db.execute("PRAGMA integrity_check")]
        db.close()
        return [] if texts == ["ok"] else texts
