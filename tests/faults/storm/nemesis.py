"""Plans the faults of a storm from its seed, and does them."""

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from msgspec import Struct

from penstock.testing.checker import Recorder
from tests.faults.storm import sqlite
from tests.faults.storm.fleet import Child, Fleet

Kind = Literal["kill", "stop", "restart", "gate", "transaction", "producers", "blackout"]
# One victim at a time, every so many seconds on the average.
EVERY = 0.4
# What befalls all: at these shares of the storm's time, and again in each half minute.
GREAT: dict[Kind, tuple[float, ...]] = {
    "gate": (0.15, 0.5, 0.8),
    "transaction": (0.25, 0.7),
    "producers": (0.4,),
    "blackout": (0.6,),
}
HALF_MINUTE = 30.0
# Seconds that most stops are shorter than.
LONGEST = 5.0


class Strike(Struct, frozen=True):
    """One fault: how many seconds after the start, what, on whom, for how long."""

    at: float
    kind: Kind
    victim: str = ""
    length: float = 0.0


def plan(seed: int, seconds: float, victims: list[str]) -> list[Strike]:
    """The same for the same seed."""
    chance = random.Random(seed)
    strikes = great(chance, seconds)
    at = chance.uniform(0.5, 1.0)
    while at < seconds:
        kind: Kind = chance.choice(("kill", "kill", "stop", "stop", "restart"))
        strikes.append(Strike(at, kind, chance.choice(victims), stop_length(chance)))
        at += chance.expovariate(1 / EVERY)
    return sorted(strikes, key=lambda strike: strike.at)


def great(chance: random.Random, seconds: float) -> list[Strike]:
    rounds = max(1, round(seconds / HALF_MINUTE))
    part = seconds / rounds
    return [
        Strike(part * (number + share + chance.uniform(-0.05, 0.05)), kind, "", length)
        for number in range(rounds)
        for kind, shares in GREAT.items()
        for share in shares
        for length in [chance.uniform(0.5, 1.5)]
    ]


def stop_length(chance: random.Random) -> float:
    """Most are longer than a lease; a few longer than a writer waits for its turn."""
    return LONGEST + 1 if chance.random() < 0.04 else chance.uniform(0.2, LONGEST)


class Nemesis:
    def __init__(self, fleet: Fleet, recorder: Recorder) -> None:
        self.scene = fleet.scene
        self.fleet = fleet
        self.recorder = recorder
        self.slots = {slot.name: slot for slot in fleet.slots}
        self.deeds: dict[Kind, Callable[[Strike], Coroutine[Any, Any, None]]] = {
            "kill": self.kill,
            "stop": self.stop,
            "restart": self.restart,
            "gate": self.hold,
            "transaction": self.hold,
            "producers": self.kill_producers,
            "blackout": self.black_out,
        }

    async def rage(self, strikes: list[Strike]) -> None:
        """Each at its time, beside the others; it is over when the last one is."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.TaskGroup() as deeds:
            for strike in strikes:
                await asyncio.sleep(start + strike.at - loop.time())
                deeds.create_task(self.deeds[strike.kind](strike))

    async def kill(self, strike: Strike) -> None:
        """Whoever tends the fleet starts another."""
        self.fleet.kill(self.slots[strike.victim])

    async def restart(self, strike: Strike) -> None:
        """As at an upgrade: it may finish what it has, and hands back the rest."""
        child = self.slots[strike.victim].running
        if child is not None and not child.asked:
            self.recorder.fault("restart", child.name)
            child.ask()

    async def stop(self, strike: Strike) -> None:
        slot = self.slots[strike.victim]
        child = slot.running
        if child is None:
            return
        self.recorder.fault("stop", child.name)
        child.stopped = True
        child.signal(signal.SIGSTOP)
        await self.frozen(child)
        self.examine(child)
        # Nothing happens while all are cut off: that shall not be most of a storm.
        short = child.cutting and strike.length < LONGEST
        await asyncio.sleep(min(strike.length, 1.0) if short else strike.length)
        if slot.child is child:
            self.fleet.wake(slot)

    async def frozen(self, child: Child) -> None:
        while True:
            if child.frozen:
                return
            await asyncio.sleep(0.005)

    def examine(self, child: Child) -> None:
        """Stopped inside a write it cuts off everybody: that limit is documented, and excused."""
        if sqlite.holds_gate(self.scene, child.pid):
            self.recorder.fault("gate", child.name)
        if child.alive and sqlite.writes(self.scene, child.pid):
            child.cutting = True
            self.recorder.fault("cut", child.name)

    async def hold(self, strike: Strike) -> None:
        """A process takes the gate, or begins a write, and stops; it goes on, or is killed."""
        child = self.fleet.hold(strike.kind)
        await self.frozen(child)
        self.examine(child)
        await asyncio.sleep(strike.length)
        number = signal.SIGCONT if strike.length < 1.0 else signal.SIGKILL
        child.signal(number)
        self.fleet.heal(child)

    async def kill_producers(self, strike: Strike) -> None:
        self.fleet.kill(*self.fleet.of("producer"))

    async def black_out(self, strike: Strike) -> None:
        """As when the machine is switched off: all are gone, and come back together."""
        self.recorder.fault("cut")
        self.recorder.fault("blackout")
        self.fleet.dark = True
        self.fleet.kill(*self.fleet.slots)
        await asyncio.sleep(strike.length)
        self.fleet.dark = False
        self.fleet.tend(self.fleet.slots)
        self.recorder.fault("heal")
