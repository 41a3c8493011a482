"""A storm on Redis: a server that is killed, and a network that fails, before half of all."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Self

import redis

from tests.checker import Plan, Recorder
from tests.faults.storm.fleet import Child
from tests.faults.storm.ground import Deed, Weather
from tests.faults.storm.outages import Outages
from tests.faults.storm.strikes import SMALL, Kind
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis

# Few connections: a process that needs more has to wait for them.
OPTIONS = "?pool_size=4"
# A line of the server's log that no fault of ours explains.
DAMAGE = ("REDIS BUG REPORT", "Bad file format", "Unexpected end of file")
# Where in its name a ticket has its id.
PLACES = {"ready": slice(22, 36), "scheduled": slice(8, 22), "dead_line": slice(22, 36)}
WEATHER = Weather(
    # Half of all are never cut off: only a server that is down excuses a late reclaim.
    Plan(
        ("kill", "stop", "blackout", "crash", "hang", "terminate", "cut_before", "cut_after",
         "delay", "half_open", "refuse"),
        excuses=("cut",),
        fault_shadow=3.0,
    ),
    {
        "producers": (0.35,),
        "crash": (0.2, 0.45, 0.88),
        "blackout": (0.65,),
        "hang": (0.95,),
        "terminate": (0.15, 0.5, 0.8),
        "cut_before": (0.12, 0.4, 0.7),
        "cut_after": (0.18, 0.28, 0.6, 0.85),
        "delay": (0.25, 0.82),
        "half_open": (0.38, 0.72),
        "refuse": (0.52,),
    },
    # A server that is down or does not answer.
    frozenset({"StoreBusy", "StoreUnreachable", "OutcomeUnknown"}),
    (*SMALL, "terminate", "cut_before", "cut_after"),
)  # fmt: skip


class RedisOutages(Outages[Redis]):
    # A script, a body that is published, or any request at all.
    requests = (b"EVALSHA", b'"filling":', b"")

    def end_sessions(self) -> bool:
        try:
            with self.server.connect() as outside:
                outside.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                outside.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
                outside.script_flush()
        except redis.RedisError:
            return False
        return True


class RedisGround:
    """The processes of odd slots reach the server by way of a proxy."""

    weather = WEATHER

    def __init__(self, directory: Path) -> None:
        self.log = directory / "server.log"

    async def __aenter__(self) -> Self:
        self.server = await asyncio.to_thread(Redis)
        self.proxy = await Proxy(self.server.port).__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.proxy.refuse()
        self.proxy.cut()
        self.log.write_text(self.server.log)
        await asyncio.to_thread(self.server.close)

    @property
    def urls(self) -> tuple[str, ...]:
        return self.server.url() + OPTIONS, self.proxy.url(self.server.url()) + OPTIONS

    def deeds(self, recorder: Recorder) -> dict[Kind, Deed]:
        return RedisOutages(self.server, self.proxy, recorder).deeds

    def seen(self, child: Child) -> list[str]:
        return []

    def heal(self) -> None:
        self.proxy.heal()

    def places(self) -> dict[int, tuple[str, ...]]:
        found: dict[int, list[str]] = defaultdict(list)
        with self.server.connect() as outside:
            for place, where in PLACES.items():
                for member in outside.zrange(f"{{penstock}}:{place}", 0, -1):
                    found[int(member[where], 16)].append(place)
            for id in outside.hkeys("{penstock}:lease"):
                found[int(id, 16)].append("lease")
        return {id: tuple(sets) for id, sets in found.items()}

    def damages(self) -> list[str]:
        lines = self.server.log.splitlines()
        return [line for line in lines if any(word in line for word in DAMAGE)] + self.leftovers()

    def leftovers(self) -> list[str]:
        """What is remembered of tickets that are in no such place any more."""
        with self.server.connect() as outside:
            waiting = {
                member[where]
                for place, where in PLACES.items()
                for member in outside.zrange(f"{{penstock}}:{place}", 0, -1)
            }
            leased = set(outside.hkeys("{penstock}:lease"))
            kept = {
                "ticket": set(outside.hkeys("{penstock}:ticket")) - waiting,
                "due": set(outside.zrange("{penstock}:due", 0, -1)) - waiting,
                "expiry": set(outside.zrange("{penstock}:expiry", 0, -1)) - waiting,
                "dead": set(outside.hkeys("{penstock}:dead")) - waiting - leased,
                "lease_until": set(outside.zrange("{penstock}:lease_until", 0, -1)) ^ leased,
                "mark": set(outside.hkeys("{penstock}:mark")) - leased,
            }
        return [f"{len(ids)} left over in {key}" for key, ids in kept.items() if ids]
