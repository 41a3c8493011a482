"""Does the faults of a storm, each at its time."""

import asyncio
import signal

from tests.checker import Recorder
from tests.faults.storm.fleet import Child, Fleet
from tests.faults.storm.ground import Deed, Ground
from tests.faults.storm.strikes import LONGEST, Kind, Strike

# On a busy machine some faults find no victim in time. A storm without them proves nothing.
MAX_EXTRA_S = 180.0
RETRY_INTERVAL_S = 0.1


class Nemesis:
    def __init__(self, fleet: Fleet, ground: Ground, recorder: Recorder) -> None:
        self.fleet = fleet
        self.ground = ground
        self.recorder = recorder
        self.slots = {slot.name: slot for slot in fleet.slots}
        self.deeds: dict[Kind, Deed] = {
            "kill": self.kill,
            "stop": self.stop,
            "restart": self.restart,
            "producers": self.kill_producers,
            "blackout": self.black_out,
            **ground.deeds(recorder),
        }

    async def rage(self, strikes: list[Strike]) -> None:
        """Each at its time, beside the others; it is over when the last one is."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.TaskGroup() as deeds:
            for strike in strikes:
                await asyncio.sleep(start + strike.at - loop.time())
                deeds.create_task(self.strike(strike))
        try:
            async with asyncio.timeout(MAX_EXTRA_S):
                await self.repeat_missing(strikes)
        except TimeoutError:
            kinds = ", ".join(sorted(self.find_missing()))
            raise AssertionError(
                f"faults that did not happen in {MAX_EXTRA_S} s: {kinds}"
            ) from None

    async def strike(self, strike: Strike) -> None:
        await self.deeds.get(strike.kind, self.hold)(strike)

    async def repeat_missing(self, strikes: list[Strike]) -> None:
        """Repeats the faults that the checker expects until each has happened."""
        while missing := self.find_missing():
            for strike in strikes:
                if strike.kind in missing:
                    await self.strike(strike)
            await asyncio.sleep(RETRY_INTERVAL_S)

    def find_missing(self) -> set[str]:
        return set(self.ground.weather.plan.faults) - self.recorder.kinds

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
        """Stopped inside a write it may cut off everybody: that is documented, and excused."""
        for kind in self.ground.seen(child) if child.alive else ():
            child.cutting = child.cutting or kind == "cut"
            self.recorder.fault(kind, child.name)

    async def hold(self, strike: Strike) -> None:
        """A process takes something in hand, and stops; it goes on, or is killed."""
        child = self.fleet.hold(strike.kind)
        await self.frozen(child)
        self.examine(child)
        await asyncio.sleep(strike.length)
        number = signal.SIGCONT if child.number % 2 else signal.SIGKILL
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
