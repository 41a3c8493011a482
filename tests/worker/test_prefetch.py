"""A worker claims ahead only while runs are short, and gives back what it cannot begin."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from penstock import Draft, Message, Penstock
from penstock.testing.faults import Faults
from penstock.worker import prefetch
from penstock.worker.prefetch import Prefetch, RunRate
from penstock.worker.worker import Worker
from tests.app.scenes import Arranged, claim_for_all, counters, until, until_true, working
from tests.worker.test_suspects import claim_and_abandon

pytestmark = pytest.mark.anyio
KINDS = pytest.mark.parametrize("kind", ["async", "thread", "batch"])
# Longer than the horizon of a worker: such runs are not claimed ahead of.
LONG_S = 0.2


class Gate:
    """Runs of the queue "long", which last until the test lets them go."""

    def __init__(self, app: Penstock, kind: str = "async") -> None:
        self.app = app
        self.begun: list[int] = []
        self.done: set[int] = set()
        self.opened = threading.Event()
        match kind:
            case "batch":
                app.subscriber("long", batch=10)(self.run_batch)
            case "thread":
                app.subscriber("long")(self.run_in_thread)
            case _:
                app.subscriber("long")(self.run)

    def has_passed(self, id: int) -> bool:
        return id in self.done or self.opened.is_set()

    async def run(self, message: Message[int]) -> None:
        self.begun.append(message.id)
        await asyncio.sleep(LONG_S)
        await until(lambda: self.has_passed(message.id))

    def run_in_thread(self, message: Message[int]) -> None:
        self.begun.append(message.id)
        self.opened.wait(60)

    async def run_batch(self, messages: list[Message[int]]) -> None:
        self.begun.extend(message.id for message in messages)
        await until(self.opened.is_set)

    async def publish(self, count: int) -> list[int]:
        broker = await self.app.broker()
        await self.app.ensure_queues(broker, ["long"])
        published = await broker.publish_many([Draft(queue="long", body=b"1")] * count)
        return [receipt.id for receipt in published]


async def count_claimed(app: Penstock) -> int:
    depths = await (await app.broker()).depths()
    return sum(count for (_, place), count in depths.items() if place == "lease")


def count_unstarted(worker: Worker) -> int:
    return sum(lane.waiting for lane in worker.routes.executors)


def have_begun(gates: list[Gate], count: int) -> bool:
    return [len(gate.begun) for gate in gates] == [count] * len(gates)


@asynccontextmanager
async def open_gate(url: str) -> AsyncIterator[Gate]:
    """The handler of a worker of its own."""
    app = Penstock(url)
    yield Gate(app)
    await app.aclose()


async def test_two_workers_share_six_long_jobs_evenly(every_url: str) -> None:
    async with open_gate(every_url) as first, open_gate(every_url) as second:
        ids = await first.publish(6)
        async with (
            working(first.app, concurrency=1) as one,
            working(second.app, concurrency=1) as other,
        ):
            for jobs in (1, 2, 3):
                await until(partial(have_begun, [first, second], jobs))
                assert (count_unstarted(one), count_unstarted(other)) == (0, 0)
                first.done.update(first.begun)
                second.done.update(second.begun)
    assert sorted(first.begun + second.begun) == ids


@KINDS
@pytest.mark.parametrize("prefetch", [None, 0, 5])
async def test_a_worker_claims_no_more_long_jobs_than_it_can_run(
    app: Penstock, kind: str, prefetch: int | None
) -> None:
    gate = Gate(app, kind)
    await gate.publish(300)
    async with working(app, concurrency=10, prefetch=prefetch) as worker:
        await until(lambda: len(gate.begun) == 10 and worker.fetchers[0].resting)
        assert await count_claimed(app) == 10
        # A run that has ended makes room for one.
        gate.done.add(gate.begun[0])
        if kind == "async":
            await until(lambda: len(gate.begun) == 11 and worker.completed == 1)
            assert (count_unstarted(worker), await count_claimed(app)) == (0, 10)
        worker.fetchers[0].stop()
        gate.opened.set()


@pytest.mark.parametrize("bound", [0, 8])
async def test_prefetch_bounds_what_is_held_beyond_the_slots(app: Penstock, bound: int) -> None:
    held: list[int] = []

    @app.subscriber("quick")
    async def on_message(message: Message[int]) -> None:
        lane = worker.routes.executors[0]
        held.append(lane.waiting + lane.running)
        await asyncio.sleep(0.001)

    broker = await app.broker()
    await app.ensure_queues(broker, ["quick"])
    await broker.publish_many([Draft(queue="quick", body=b"1")] * 500)
    async with working(app, concurrency=2, prefetch=bound) as worker:
        await until(lambda: worker.completed == 500)
    assert max(held) <= 2 + bound


async def test_short_jobs_take_far_fewer_claims_than_there_are_messages() -> None:
    faults = Faults()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)

    @app.task
    async def work() -> None: ...

    await app.aenqueue_many(work.call() for _ in range(2_000))
    async with working(app, concurrency=2) as worker:
        await until(lambda: worker.completed == 2_000)
    assert faults.counts["claim"] < 100
    await app.aclose()


async def test_what_was_claimed_ahead_of_long_jobs_goes_back(app: Penstock) -> None:
    """Short jobs were claimed by the hundred; then come long ones."""
    gate = Gate(app)

    @app.task(queue="long")
    async def quick() -> None: ...

    broker = await app.broker()
    await app.ensure_queues(broker, ["long"])
    await app.aenqueue_many(quick.call() for _ in range(1_000))
    ids = await gate.publish(200)
    async with working(app, concurrency=4) as worker:
        await until(lambda: len(gate.begun) == 4)

        async def is_given_back() -> bool:
            return await count_claimed(app) == 4

        await until_true(is_given_back)
        assert gate.begun == ids[:4]
        assert {await counters(app, id) for id in ids[4:]} == {("ready", 0, 0)}
        # In their order, and each of them once.
        gate.done.update(gate.begun)
        await until(lambda: len(gate.begun) == 8)
        assert gate.begun == ids[:8]
        worker.fetchers[0].stop()
        gate.opened.set()


async def test_what_one_worker_cannot_begin_another_runs(filed: Penstock) -> None:
    """Claimed for the free slots of threads, they wait for the one of coroutines."""
    async with open_gate(filed.url) as first, open_gate(filed.url) as second:
        claim_for_all(first.app, "long")
        ids = await first.publish(2)
        async with working(first.app, concurrency=1) as worker:
            await until(lambda: len(worker.held) == 2)
            async with working(second.app, concurrency=1):
                await until(lambda: second.begun == ids[1:])
                assert await counters(filed, ids[1]) == ("claimed", 0, 1)
                first.opened.set()
                second.opened.set()


async def test_a_worker_alone_does_not_give_back_the_same_messages_in_circles(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that they come back, it leaves them to others for longer."""
    monkeypatch.setattr(prefetch, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(prefetch, "CHECK_INTERVAL_S", 0.001)
    monkeypatch.setattr("penstock.worker.fetcher.IDLE_PAUSE_S", 0.01)
    gate = Gate(app)
    claim_for_all(app, "long")
    ids = await gate.publish(2)
    async with working(app, concurrency=1) as worker:
        watch = worker.give_back.feeders[0][1]
        # 0.01 s, and four times as long after each of three rounds.
        await until(lambda: max(each.pause.seconds for each in watch) >= 0.64)
        assert await counters(app, ids[1]) in [("claimed", 0, 1), ("ready", 0, 0)]
        gate.opened.set()
        await until(lambda: worker.completed == 2)


async def test_a_worker_that_comes_late_runs_what_the_first_could_not_begin(
    filed: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, the first claimed the same message again and again for its free threads."""
    monkeypatch.setattr(prefetch, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(prefetch, "CHECK_INTERVAL_S", 0.001)
    monkeypatch.setattr(prefetch, "PAUSE_GROWTH", 1e9)
    monkeypatch.setattr("penstock.worker.fetcher.IDLE_PAUSE_S", 0.01)
    async with open_gate(filed.url) as first, open_gate(filed.url) as second:
        claim_for_all(first.app, "long")
        ids = await first.publish(2)
        async with working(first.app, concurrency=1) as worker:
            watch = worker.give_back.feeders[0][1]
            await until(lambda: max(each.pause.seconds for each in watch) > 1)
            # It leaves the message alone, though its threads are free.
            assert worker.fetchers[0].limit() == 0
            async with working(second.app, concurrency=1):
                await until(lambda: second.begun == ids[1:])
                assert first.begun == ids[:1]
                first.opened.set()
                second.opened.set()


async def test_suspects_that_wait_for_a_long_one_go_back_and_hold_up_no_others(
    app: Penstock,
) -> None:
    begun: list[int] = []
    go_on = asyncio.Event()

    @app.subscriber("default")
    async def on_message(message: Message[int]) -> None:
        begun.append(message.id)
        await go_on.wait()

    broker = await app.broker()
    published = await broker.publish_many([Draft(body=b"1")] * 5)
    ids = [receipt.id for receipt in published]
    await claim_and_abandon(app, 3)
    async with working(app, concurrency=3) as worker:
        await until(lambda: len(begun) == 3)
        assert [id for id in begun if id in ids[:3]] == ids[:1]

        async def is_given_back() -> bool:
            return await counters(app, ids[1]) == ("ready", 0, 1)

        await until_true(is_given_back)
        go_on.set()
        await until(lambda: worker.completed == 5)
    assert {await counters(app, id) for id in ids[:3]} == {("completed", 1, 2)}


async def test_queues_of_one_lane_take_turns_though_others_are_asked_as_well(app: Penstock) -> None:
    """A claim of one message is for another queue each time."""
    seen: list[str] = []

    async def on_loop(message: Message[str]) -> None:
        seen.append(message.body)
        await asyncio.sleep(0)

    for name in ("first", "second"):
        app.subscriber(name)(on_loop)

    @app.subscriber("threads")
    def in_thread(message: Message[str]) -> None: ...

    broker = await app.broker()
    names = ["first", "second", "threads"]
    await app.ensure_queues(broker, names)
    drafts = [Draft(queue=name, body=b'"%b"' % name.encode()) for name in names]
    await broker.publish_many(drafts * 100)
    async with working(app, concurrency=1, prefetch=0) as worker:
        await until(lambda: worker.completed == 300)
    assert {"first", "second"} == set(seen[:50])


def pace(runs: int, each: float, busy: float) -> RunRate:
    return RunRate(runs, runs * each, busy)


@pytest.mark.parametrize(
    ("runs", "each", "busy", "ahead"),
    [
        (9, 0.001, 0.001, 0),
        (10, 0.001, 0.001, 20),
        (10, 0.2, 0.2, 0),
        (10, 0.05, 0.05, 20),
        # They ran one after the other, though there are ten slots.
        (10, 0.05, 0.5, 2),
        (400, 0.001, 0.04, 500),
    ],
    ids=["too few seen", "short", "long", "a tenth of a second", "one at a time", "the most"],
)
def test_a_worker_claims_ahead_by_what_it_has_seen(
    runs: int, each: float, busy: float, ahead: int
) -> None:
    rule = Prefetch(slots=10, horizon=0.1, most=500)
    rule.adapt(pace(runs, each, busy))
    assert rule.ahead == ahead


def test_after_a_long_run_several_rounds_of_short_ones_are_needed() -> None:
    rule = Prefetch(slots=1, horizon=0.1, most=500)
    rule.adapt(RunRate(1, 1.0, 1.0))
    rounds = [RunRate(2 + number, 1.0, 1.0 + number / 1_000) for number in range(6)]
    found = []
    for each in rounds:
        rule.adapt(each)
        found.append(rule.ahead)
    assert found == [0, 0, 0, 1, 2, 2]
