"""One storm, from its first process to its verdict."""

import asyncio
import time
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.queue import Schedule
from penstock.model.store_types import Cursor
from penstock.store import Store
from tests.checker import Fault, Recorder, Report, check
from tests.checker import read as read_history
from tests.faults.storm import logs
from tests.faults.storm.dump import PAGE, dump
from tests.faults.storm.fleet import Fleet, Slot
from tests.faults.storm.ground import Ground
from tests.faults.storm.nemesis import Nemesis
from tests.faults.storm.scene import Scene, Stores, Workers, limits, set_up, ticks
from tests.faults.storm.strikes import plan

Roles = dict[str, int]
FLEETS: dict[tuple[Stores, Workers], Roles] = {
    ("sqlite", "core"): {"producer": 3, "consumer": 6, "meddler": 1},
    ("sqlite", "real"): {"producer": 3, "product": 4, "meddler": 1},
    ("sqlite", "both"): {"producer": 3, "consumer": 4, "product": 2, "meddler": 1},
    # The server has processes of its own.
    ("postgres", "core"): {"producer": 2, "consumer": 4, "meddler": 1},
    ("postgres", "real"): {"producer": 2, "product": 3, "meddler": 1},
    ("postgres", "both"): {"producer": 2, "consumer": 2, "product": 2, "meddler": 1},
    ("mariadb", "core"): {"producer": 2, "consumer": 4, "meddler": 1},
    ("mariadb", "real"): {"producer": 2, "product": 3, "meddler": 1},
    ("mariadb", "both"): {"producer": 2, "consumer": 2, "product": 2, "meddler": 1},
    ("redis", "core"): {"producer": 2, "consumer": 4, "meddler": 1},
    ("redis", "real"): {"producer": 2, "product": 3, "meddler": 1},
    ("redis", "both"): {"producer": 2, "consumer": 2, "product": 2, "meddler": 1},
}
WAITING = ("ready", "scheduled", "lease")
# The store is drained for as long as something changes in so many seconds.
DRAIN = 90.0
POLL_INTERVAL_S = 0.05
STALL = 0.5


class Outcome(Struct, frozen=True):
    """What a storm came to; `problems` are what the checker cannot see.

    `busy`: processes that found the store blocked when they started.
    """

    report: Report
    problems: list[str]
    states: dict[str, int]
    innocents: int
    killers: int
    deliveries: int
    drained_in: float
    starts: int
    busy: int
    logged: dict[str, int]

    @property
    def calm(self) -> bool:
        return self.report.valid and not self.problems


class Storm:
    def __init__(
        self, scene: Scene, ground: Ground, seconds: float, workers: Workers, reclaim_within: float
    ) -> None:
        self.scene = scene
        self.ground = ground
        self.plan = replace(ground.weather.plan, reclaim_within=reclaim_within)
        self.seconds = seconds
        self.recorder = Recorder(scene.history, "storm")
        self.fleet = Fleet(scene, self.recorder, FLEETS[scene.store, workers])

    async def run(self) -> Outcome:
        try:
            async with await stores.open(self.scene.url) as store:
                schedules = await self.begin(Broker(store))
            # Meanwhile nobody but the victims has the store open.
            await self.rage()
            async with await stores.open(self.scene.url) as store:
                drained_in = await self.drain(store)
                await self.write_ticks(store, schedules)
                dumped = await dump(store, self.recorder, self.ground.places())
        finally:
            self.fleet.destroy()
            self.recorder.close()
        # Core consumers alone run no handlers, so none can be killed by one.
        if self.scene.workers != "core" and not dumped.killers:
            dumped.harmed.append("no killer took part")
        logged, surprises = logs.troubles(self.scene.logs, self.ground.weather.expected)
        return Outcome(
            report=check(read_history(self.scene.history)),
            problems=[*self.fleet.crashes, *surprises, *self.ground.damages(), *dumped.harmed],
            states=dict(dumped.states),
            innocents=dumped.innocents,
            killers=dumped.killers,
            deliveries=dumped.deliveries,
            drained_in=drained_in,
            starts=sum(slot.starts for slot in self.fleet.slots),
            busy=self.fleet.busy,
            logged=dict(logged),
        )

    async def begin(self, broker: Broker) -> list[Schedule]:
        schedules = await set_up(broker)
        self.recorder.write([self.plan, *map(limits, await broker.admin.queues())])
        return schedules

    async def rage(self) -> None:
        victims = [slot.name for slot in self.fleet.slots]
        weather = self.ground.weather
        strikes = plan(self.scene.seed, self.seconds, victims, weather.great, weather.small)
        tending = asyncio.create_task(self.tend(self.fleet.slots))
        await self.all_at_work()
        await Nemesis(self.fleet, self.ground, self.recorder).rage(strikes)
        await cancel(tending)

    async def all_at_work(self) -> None:
        """Each has recorded a first call: on a busy machine that takes a while."""
        while True:
            if self.fleet.crashes or all(slot.at_work for slot in self.fleet.slots):
                return
            await asyncio.sleep(POLL_INTERVAL_S)

    async def tend(self, slots: list[Slot]) -> None:
        """Replaces who is gone. If the machine gave it no turn for long, it gave nobody one."""
        seen = time.monotonic_ns()
        while True:
            self.fleet.tend(slots)
            await asyncio.sleep(POLL_INTERVAL_S)
            now = time.monotonic_ns()
            if now - seen > (POLL_INTERVAL_S + STALL) * 1e9:
                stall = [Fault(seen, "cut", "machine"), Fault(now, "heal", "machine")]
                self.recorder.write(stall)
            seen = now

    async def drain(self, store: Store) -> float:
        """No more faults, nothing new: what is left must come to its end."""
        self.ground.heal()
        self.recorder.fault("heal")
        start = time.monotonic()
        await self.fleet.end(self.fleet.of("producer", "meddler"))
        workers = self.fleet.of("consumer", "product")
        tending = asyncio.create_task(self.tend(workers))
        # What is stuck then is for the checker to say.
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                await self.end_schedules(store)
            await wait_until_empty(store)
        await cancel(tending)
        drained_in = time.monotonic() - start
        await self.fleet.end(workers)
        return drained_in

    async def end_schedules(self, store: Store) -> None:
        """Once every tick that is due has been fired."""
        while True:
            now, schedules = await store.now(), await store.schedules()
            if all(schedule.next_at > now for schedule in schedules):
                break
            await asyncio.sleep(POLL_INTERVAL_S)
        for schedule in schedules:
            await store.save_schedule(replace(schedule, paused=True))

    async def write_ticks(self, store: Store, first: list[Schedule]) -> None:
        last = {schedule.id: schedule for schedule in await store.schedules()}
        self.recorder.write([ticks(last[each.id], each.next_at) for each in first])


async def wait_until_empty(store: Store) -> None:
    """Or TimeoutError: a busy machine is slow to restart what killers end, but goes on."""
    cursor = Cursor()
    async with asyncio.timeout(DRAIN) as limit:
        while any(tally.place in WAITING for tally in await store.census()):
            feed = await store.feed(cursor, PAGE)
            if feed.history:
                limit.reschedule(asyncio.get_running_loop().time() + DRAIN)
            cursor = feed.cursor
            await asyncio.sleep(POLL_INTERVAL_S)


async def cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
