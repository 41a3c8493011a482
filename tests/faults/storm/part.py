"""What every process of a storm has: a seeded chance, a recorder, and an end it is asked for."""

import asyncio
import os
import random
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import stores
from penstock.agents import make_agents
from penstock.broker.local import Broker
from penstock.errors import PenstockError
from penstock.runner import Runner, make_identity
from tests.checker import Recorder
from tests.faults.storm.scene import Scene
from tests.faults.storm.witness import Witness


class Part(ABC):
    """One process: it plays its part until SIGTERM."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = name
        self.recorder = Recorder(scene.history, name)
        self.random = random.Random(f"{scene.seed} {name}")
        self.stopping = asyncio.Event()

    @abstractmethod
    async def play(self) -> None: ...

    def listen(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stopping.set)

    def kill_itself(self) -> None:
        """Some messages end whoever runs them."""
        self.recorder.fault("kill", self.name)
        os.kill(os.getpid(), signal.SIGKILL)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class CorePart(Part):
    """Works with a broker of its own, and does the upkeep beside it as every process does."""

    witness: Witness

    async def play(self) -> None:
        """Over two handles on the store: a process may have several, and close them."""
        url = self.scene.way(self.name)
        async with await stores.open(url) as store, await stores.open(url) as other:
            self.witness = Witness(Broker(store), self.recorder)
            self.listen()
            async with Runner(make_agents(other, make_identity())):
                await self.work()

    @abstractmethod
    async def work(self) -> None: ...


@contextmanager
def tolerate() -> Iterator[None]:
    """A call that is refused or fails is recorded as that, and life goes on."""
    try:
        yield
    except PenstockError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
