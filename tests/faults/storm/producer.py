"""Publishes: one, many at once, all or none, with keys, names, delays, and by the product."""

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any, TypeVar

from penstock.errors import StoreError
from penstock.model.message import Dedup, Draft
from tests.checker import Answer, Publish
from tests.faults.storm import mariadb, postgres, sqlite
from tests.faults.storm.bodies import body_of, filling
from tests.faults.storm.holding import DRIVER_ERRORS
from tests.faults.storm.part import CorePart, tolerate
from tests.faults.storm.product import BOOKS, app_of
from tests.faults.storm.recording import record_refusal
from tests.faults.storm.scene import KILLERS, Scene, Stores

T = TypeVar("T")
OWN: dict[Stores, Callable[[Scene], Any]] = {
    "sqlite": sqlite.connection,
    "postgres": postgres.connection,
    "mariadb": mariadb.connection,
}
HANDS = 3
CROWD = 500
KEYS = 12
WINDOW = 3600.0
# Each is chosen as often as it stands here.
WAYS = ("one",) * 10 + (
    "again", "shared", "together", "plain", "atomic", "task", "tasks", "own", "booked",
    "killers",
)  # fmt: skip


class Producer(CorePart):
    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(scene, name)
        self.numbers = count()
        self.app, self.job, self.slow, self.book = app_of(self)
        # The first batch of each producer has a killer, so that no storm is without one.
        self.killer_due = True
        # What may be published once more, under the same key or name.
        self.kept: list[Draft] = []

    async def work(self) -> None:
        async with asyncio.TaskGroup() as hands:
            for _ in range(HANDS):
                hands.create_task(self.hand())
        await self.app.aclose()

    async def hand(self) -> None:
        while not self.stopping.is_set():
            way = self.random.choice(WAYS)
            with tolerate():
                if not await self.crowded():
                    await getattr(self, way)()
            await self.pause(self.random.uniform(0.0, 0.1))

    async def crowded(self) -> bool:
        """The workers are behind: more would only take longer to drain."""
        depths = await self.witness.broker.store.depths(0)
        return sum(count for (_, place), count in depths.items() if place != "dead") > CROWD

    async def one(self) -> None:
        await self.witness.publish(self.draft())

    async def again(self) -> None:
        if self.kept:
            await self.witness.publish(self.random.choice(self.kept))

    async def shared(self) -> None:
        """All producers use this key in this second."""
        label = f"shared-{int(time.monotonic())}"
        dedup = Dedup(label, WINDOW)
        await self.witness.publish(Draft(queue="plain", body=body_of(label), dedup=dedup))

    async def together(self) -> None:
        """Callers side by side share a commit, and each gets its own answer."""
        drafts = [self.draft() for _ in range(self.random.randint(2, 8))]
        calls = [self.witness.publish(draft) for draft in drafts]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            with tolerate():
                if isinstance(outcome, BaseException):
                    raise outcome

    async def plain(self) -> None:
        """Nothing in it can be refused, so that after a crash all exist or none."""
        labels = [self.label() for _ in range(self.random.randint(2, 30))]
        queue = self.random.choice(("plain", "counted", "mail"))
        drafts = [Draft(queue=queue, body=body_of(label)) for label in labels]
        await self.witness.publish_many(drafts, atomic=False, batch=labels[0])

    async def atomic(self) -> None:
        drafts = [self.draft() for _ in range(self.random.randint(2, 12))]
        await self.witness.publish_many(drafts, atomic=True, batch=self.label())

    async def task(self) -> None:
        label = self.label()
        task = self.random.choice((self.job, self.slow))
        key = self.sometimes(0.3, f"key-{self.random.randrange(KEYS)}")
        delay = self.random.choice((0.0, 0.0, 0.5))
        await task.options(key=key, delay=delay).aenqueue(label, filling(label))

    async def tasks(self) -> None:
        labels = [self.label() for _ in range(self.random.randint(2, 10))]
        await self.app.aenqueue_many([self.job.call(label, filling(label)) for label in labels])

    async def booked(self) -> None:
        """A task that ends in a transaction of its own, where it has one in common with us."""
        if self.scene.store in BOOKS:
            label = self.label()
            await self.book.aenqueue(label, filling(label))

    async def own(self) -> None:
        """In a transaction of the application's own, where there are such."""
        if self.scene.store not in OWN:
            return
        label = self.label()
        call = self.recorder.invoke(Publish(label, "jobs"))
        try:
            with closing(OWN[self.scene.store](self.scene)) as connection:
                task = self.job.options(connection=connection)
                job = await task.aenqueue(label, filling(label))
                if self.random.random() < 0.3:
                    connection.rollback()
                    self.recorder.result(call, Answer("refused", "ROLLED_BACK"))
                else:
                    connection.commit()
                    self.recorder.result(call, Answer("ok", id=job.id))
        except StoreError as error:
            self.recorder.result(call, record_refusal(error))
        except DRIVER_ERRORS as error:
            # The server went away, perhaps in the middle of the commit: nobody knows.
            print(f"{type(error).__name__}: {error}", flush=True)

    async def killers(self) -> None:
        """Innocent messages, and now and then one among them that ends its worker."""
        if self.scene.workers == "core":
            return
        drafts = [
            Draft(queue=KILLERS, body=body_of(self.label("-innocent")))
            for _ in range(self.random.randint(2, 12))
        ]
        if self.killer_due or self.random.random() < 0.1:
            self.killer_due = False
            bomb = Draft(queue=KILLERS, body=body_of(self.label("-bomb")))
            drafts.insert(self.random.randrange(len(drafts)), bomb)
        await self.witness.publish_many(drafts, atomic=False, batch=self.label())

    def label(self, trait: str = "") -> str:
        return f"{self.name}-{next(self.numbers)}{trait}"

    def draft(self) -> Draft:
        """Now and then one that always fails, and rarely one that ends whoever runs it."""
        dice = self.random.random()
        if dice < 0.002:
            return Draft(queue="counted", body=body_of(self.label("-bomb")))
        label = self.label("-poison" if dice < 0.03 else "")
        draft = Draft(
            queue=self.random.choice(("plain", "plain", "counted", "patient", "mail")),
            body=body_of(label),
            priority=self.random.randint(0, 9),
            ordering_key=self.sometimes(0.3, f"key-{self.random.randrange(KEYS)}"),
            dedup=self.sometimes(0.1, Dedup(label, WINDOW)),
            name=self.sometimes(0.05, label),
            delay=self.sometimes(0.1, self.random.uniform(0.1, 2.0)) or 0.0,
            ttl=self.sometimes(0.03, self.random.uniform(0.1, 3.0)),
            lease=self.sometimes(0.03, 1.3),
        )
        if draft.dedup or draft.name:
            self.kept.append(draft)
        return draft

    def sometimes(self, chance: float, value: T) -> T | None:
        return value if self.random.random() < chance else None
