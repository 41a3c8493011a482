"""Runs redelivered messages one at a time, so that one that kills its worker is found."""

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from penstock.broker.interfaces.broker import BrokerInterface
from penstock.errors import StoreError
from penstock.model.message import Leased, State
from penstock.model.settings import QueueSettings
from penstock.model.store_types import Answer, AnswerKind, Mark
from penstock.retry_policies import LEASE_RETRY_DELAY_S
from penstock.worker.context import Context
from penstock.worker.executors.base import Executor, Run

PlacedRun: TypeAlias = tuple[Executor, Run]
BUSY = Answer(AnswerKind.BUSY)


def may_be_killer(delivery: Leased, settings: QueueSettings) -> bool:
    """True if an earlier delivery may have killed its worker."""
    return delivery.deliveries > delivery.attempts + 1 or settings.retry.on_expiry != "keep"


class Waiting(NamedTuple):
    """A quarantined message, and since when it waits, by the loop's clock."""

    place: PlacedRun
    since: float


class Quarantine:
    """Runs suspects one at a time, those with the fewest deliveries first.

    So a message that kills every worker runs after the neighbors that died with it. Ordinary
    retries run at once. The store records the start of each run first.
    """

    def __init__(self, broker: BrokerInterface, on_lost: Callable[[Context], None]) -> None:
        self.broker = broker
        self.on_lost = on_lost
        self.queue: list[Waiting] = []
        self.retries: list[PlacedRun] = []
        self.current: Context | None = None
        self.beginning: list[PlacedRun] = []
        self.changed = asyncio.Event()

    def add(self, place: PlacedRun, *, isolated: bool) -> None:
        if isolated:
            self.queue.append(Waiting(place, asyncio.get_running_loop().time()))
        else:
            self.retries.append(place)
        self.changed.set()

    def release_turn(self, context: Context) -> None:
        """Lets the next suspect begin.

        Call it after the result was written: the next run may kill this process.
        """
        if self.current is context:
            self.current = None
            self.changed.set()

    def count_waiting(self, lanes: Collection[Executor]) -> int:
        return sum(lane in lanes for lane, _ in self.places)

    def count_starting(self, lanes: Collection[Executor]) -> int:
        """Returns how many are about to take a slot in these executors."""
        count = sum(lane in lanes for lane, _ in [*self.retries, *self.beginning])
        next_one = self.queue and (self.current is None or self.current.over)
        return count + bool(next_one and any(each.place[0] in lanes for each in self.queue))

    @property
    def places(self) -> list[PlacedRun]:
        return [*(each.place for each in self.queue), *self.retries, *self.beginning]

    def take_back(self) -> list[Context]:
        """Takes all that have not started, including those whose start is being recorded."""
        back = [get_context(place) for place in self.places]
        self.queue.clear()
        self.retries.clear()
        self.beginning.clear()
        return back

    def take_overdue(self, lanes: Collection[Executor], since: float) -> list[Context]:
        """Takes the suspects of these executors that have waited since `since` or longer."""
        overdue = [each for each in self.queue if each.since <= since and each.place[0] in lanes]
        self.queue = [each for each in self.queue if each not in overdue]
        return [get_context(each.place) for each in overdue]

    async def step(self) -> None:
        self.changed.clear()
        places, self.retries = self.retries, []
        if self.current is None and self.queue:
            places.append(self.take_next())
            self.current = get_context(places[-1])
        if places:
            await self.begin(places)
        else:
            await self.changed.wait()

    def take_next(self) -> PlacedRun:
        """Takes the first one with the fewest deliveries."""
        first = min(self.queue, key=lambda each: get_context(each.place).delivery.deliveries)
        self.queue.remove(first)
        return first.place

    async def begin(self, places: list[PlacedRun]) -> None:
        self.beginning = places
        marks = [Mark(get_context(each).id, get_context(each).fence, begin=True) for each in places]
        try:
            answers = await self.broker.mark_many(marks)
        except StoreError as error:
            self.broker.outages.report_failure("suspects", error)
            await asyncio.sleep(LEASE_RETRY_DELAY_S)
            answers = [BUSY] * len(marks)
        else:
            self.broker.outages.report_success("suspects")
        # `take_back` may have emptied the list meanwhile.
        self.beginning = []
        for place, answer in zip(places, answers, strict=False):
            self.handle_begun(place, answer)

    def handle_begun(self, place: PlacedRun, answer: Answer) -> None:
        lane, run = place
        if answer.kind is AnswerKind.DONE or answer.state is State.CLAIMED:
            lane.put([run])
        elif answer.kind is AnswerKind.BUSY:
            alone = self.current is run[1]
            self.release_turn(run[1])
            self.add(place, isolated=alone)
        else:
            self.release_turn(run[1])
            self.on_lost(run[1])


def get_context(place: PlacedRun) -> Context:
    return place[1][1]
