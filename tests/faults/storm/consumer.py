"""Claims batches and does with them whatever a consumer may do, right or late or never."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.model.message import Fail, Leased, Nack, Release, SettleCancelled, SettleReject
from penstock.model.store_types import AnswerKind
from tests.faults.storm.bodies import read
from tests.faults.storm.part import CorePart, tolerate
from tests.faults.storm.scene import SHARED_QUEUES, Scene

HANDS = 4
Act = Callable[[Leased], Awaitable[None]]


class Consumer(CorePart):
    """Several hands share one broker, so that their settlements share commits."""

    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(scene, name)
        self.begins = self.random.random() < 0.8
        self.suspects = asyncio.Lock()
        acts: dict[Act, int] = {
            self.complete: 60,
            self.nack: 12,
            self.release: 6,
            self.extend: 8,
            self.fail: 3,
            self.reject: 2,
            self.late: 3,
            self.forget: 2,
            self.twice: 2,
            self.stale: 2,
        }
        self.acts, self.weights = list(acts), list(acts.values())

    async def work(self) -> None:
        async with asyncio.TaskGroup() as hands:
            for _ in range(HANDS):
                hands.create_task(self.hand())

    async def hand(self) -> None:
        while not self.stopping.is_set():
            queue = self.random.choice(SHARED_QUEUES)
            limit = self.random.choice((1, 1, 5, 20))
            with tolerate():
                await self.run(await self.witness.claim(queue, limit, 0.2, self.begins))

    async def run(self, messages: list[Leased]) -> None:
        """Some batches are completed by one call, the others each for themselves."""
        suspects = [message for message in messages if message.suspect]
        others = [message for message in messages if not message.suspect]
        if len(others) > 1 and self.random.random() < 0.3:
            await self.pause(self.random.uniform(0.0, 0.1))
            await self.witness.complete([each for each in others if self.harmless(each)])
            others = [each for each in others if not self.harmless(each)]
        await asyncio.gather(*map(self.act, others))
        for message in suspects:
            await self.run_suspect(message)

    async def run_suspect(self, message: Leased) -> None:
        """Beside no other suspect, and begun before, if that was promised."""
        with tolerate():
            async with self.suspects:
                if self.begins:
                    await self.witness.begin(message)
                await self.act(message)

    def harmless(self, message: Leased) -> bool:
        return not read(message.body)[0].endswith(("-poison", "-bomb"))

    async def act(self, message: Leased) -> None:
        label, _ = read(message.body)
        if label.endswith("-bomb"):
            self.kill_itself()
        (act,) = self.random.choices(self.acts, self.weights)
        with tolerate():
            await (self.nack if label.endswith("-poison") else act)(message)

    async def complete(self, message: Leased) -> None:
        await self.pause(self.random.uniform(0.0, 0.05))
        await self.witness.complete([message])

    async def nack(self, message: Leased) -> None:
        delay = self.random.choice((None, 0.0, 0.0, 0.3))
        await self.witness.settle(message, Nack("the storm said so", delay))

    async def release(self, message: Leased) -> None:
        await self.witness.settle(message, Release())

    async def fail(self, message: Leased) -> None:
        await self.witness.settle(message, Fail("the storm said so"))

    async def reject(self, message: Leased) -> None:
        await self.witness.settle(message, SettleReject("the storm said so"))

    async def extend(self, message: Leased) -> None:
        """Works longer than its lease; stops when asked to, or when it was lost."""
        for _ in range(self.random.randint(1, 5)):
            await self.pause(0.3)
            (told,) = await self.witness.extend([message], self.random.uniform(0.5, 2.0))
            if told.kind is not AnswerKind.DONE:
                return
            if told.cancel_requested:
                await self.witness.settle(message, SettleCancelled())
                return
        await self.witness.complete([message])

    async def late(self, message: Leased) -> None:
        await self.pause(self.random.uniform(1.0, 4.0))
        await self.witness.complete([message])

    async def forget(self, message: Leased) -> None:
        """Its lease runs out."""

    async def twice(self, message: Leased) -> None:
        await self.witness.complete([message])
        await self.witness.complete([message])

    async def stale(self, message: Leased) -> None:
        await self.witness.complete([message])
        await self.witness.settle(message, Nack("too late", 0.0))
