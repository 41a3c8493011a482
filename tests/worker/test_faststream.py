"""The acceptance cases of FastStream-SQLA, each under its own words (acceptance.md).

They run on every store: on engines whose time a test can let pass, and by URL where processes or
connections of somebody else take part.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pymysql
import pytest
from structlog.testing import capture_logs

from penstock import Draft, Message, Penstock, constant, exponential, stores
from penstock.broker.local import Broker
from penstock.client.brokers import BrokerPool
from penstock.errors import StoreUnusable
from penstock.model.message import HistoryRow, State
from penstock.testing.faults import Faults
from penstock.worker.worker import Worker
from tests.app.scenes import (
    claim_for_all,
    counters,
    record,
    turning,
    until,
    until_true,
    working,
)
from tests.conformance.engines import ENGINES, Engine
from tests.local import local
from tests.servers.mariadb import place
from tests.worker.conftest import Start

pytestmark = pytest.mark.anyio
# Stores with tables, and with transactions of their callers.
OF_DATABASES = pytest.mark.parametrize("url", ["sqlite", "postgres", "mariadb"], indirect=True)
SECOND = 1_000_000


class Engaged(BrokerPool):
    """On an engine, and its calls are counted."""

    def __init__(self, engine: Engine, faults: Faults) -> None:
        super().__init__("", "default")
        self.in_memory = not engine.lasting
        self.engine = engine
        self.faults = faults

    async def open(self) -> Broker:
        return Broker(self.faults.wrap(await self.engine.open()))


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    engine = ENGINES[request.param](request, tmp_path)
    yield engine
    engine.close()


@pytest.fixture
async def app(engine: Engine, faults: Faults) -> AsyncIterator[Penstock]:
    app = Penstock()
    app.connections = Engaged(engine, faults)
    app.queue("orders", preset="faststream")
    yield app
    await app.aclose()


async def publish(app: Penstock, count: int = 1, **options: Any) -> list[int]:
    drafts = [Draft(queue="orders", body=b"1", **options) for _ in range(count)]
    return [(await app.apublish(draft)).id for draft in drafts]


async def places(app: Penstock) -> dict[str, int]:
    census = await local(await app.broker()).store.census()
    return {each.place: each.count for each in census if each.count and each.place != "message"}


async def test_publish_then_handler_ok_is_completed_and_the_main_table_is_empty(
    app: Penstock,
) -> None:
    @app.subscriber("orders")
    async def on_order(message: Message[int]) -> None: ...

    (id,) = await publish(app)
    async with working(app) as worker:
        await until(lambda: worker.completed == 1)
    assert await counters(app, id) == ("completed", 1, 1)
    assert await places(app) == {"ended": 1}


@OF_DATABASES
async def test_publish_with_the_callers_connection_follows_its_rollback_and_commit(
    url: str,
) -> None:
    app = Penstock(url)

    @app.task
    async def send() -> None: ...

    await app.ensure_queues(await app.broker(), ["default"])
    with closing(connect(url)) as db:
        await send.options(connection=db).aenqueue()
        db.rollback()
        assert await places(app) == {}
        await send.options(connection=db).aenqueue()
        db.commit()
        assert await places(app) == {"ready": 1}
    await app.aclose()


def connect(url: str) -> Any:
    """A connection of the caller's own."""
    if url.startswith("postgresql:"):
        return psycopg.connect(url)
    if url.startswith("mariadb:"):
        return pymysql.connect(**place(url))
    return sqlite3.connect(url.removeprefix("sqlite:///"))


async def test_next_attempt_at_in_the_future_is_fetched_not_before_but_after(
    app: Penstock, engine: Engine
) -> None:
    @app.subscriber("orders")
    async def on_order(message: Message[int]) -> None: ...

    broker = await app.broker()
    (id,) = await publish(app, run_at=await broker.now() + 3_600 * SECOND)
    (first,) = await publish(app)
    async with turning(app) as (worker, agents):
        await until(lambda: worker.completed == 1)
        assert await counters(app, first) == ("completed", 1, 1)
        await engine.travel(3_000)
        agents.nudge("scheduler")
        (second,) = await publish(app)
        await until(lambda: worker.completed == 2)
        assert await counters(app, id) == ("scheduled", 0, 0)
        await engine.travel(600)
        agents.nudge("scheduler")
        await until(lambda: worker.completed == 3)
    assert await counters(app, second) == await counters(app, id) == ("completed", 1, 1)


async def test_nack_on_error_with_exponential_runs_at_0_1_and_2_seconds_and_fails(
    app: Penstock, engine: Engine
) -> None:
    @app.subscriber("orders", policy="nack_on_error", retry=exponential(1, 2, max_attempts=3))
    async def on_order(message: Message[int]) -> None:
        raise ValueError("boom")

    (id,) = await publish(app)
    async with turning(app) as (worker, agents):
        for wait in (0, 1, 2):
            await engine.travel(wait)
            agents.nudge("scheduler")
            await until(partial(has_settled, worker, wait + 1))
    found = await record(app, id)
    assert (found.state, found.attempts, found.reason) == (State.DEAD, 3, "retries_exhausted")
    assert [delay_of(row) for row in found.timeline] == [1, 2, None]
    first, second, third = (row.claimed_at or 0 for row in found.timeline)
    assert second - first >= 1 * SECOND
    assert third - second >= 2 * SECOND


def has_settled(worker: Worker, count: int) -> bool:
    return worker.settled == count


def delay_of(row: HistoryRow) -> float | None:
    return None if row.due_at is None else (row.due_at - row.at) / SECOND


async def test_reject_on_error_and_an_exception_is_failed_after_one_run(app: Penstock) -> None:
    @app.subscriber("orders", policy="reject_on_error")
    async def on_order(message: Message[int]) -> None:
        raise ValueError("boom")

    (id,) = await publish(app)
    async with working(app) as worker:
        await until(lambda: worker.settled == 1)
    assert await counters(app, id) == ("dead", 1, 1)
    assert (await record(app, id)).reason == "rejected"


async def test_manual_without_a_call_is_rejected_with_an_error_log(app: Penstock) -> None:
    @app.subscriber("orders", policy="manual")
    async def on_order(message: Message[int]) -> None: ...

    (id,) = await publish(app)
    with capture_logs() as logs:
        async with working(app) as worker:
            await until(lambda: worker.settled == 1)
    assert await counters(app, id) == ("dead", 1, 1)
    told = [entry for entry in logs if entry["event"] == "run_not_settled"]
    assert [(entry["log_level"], entry["id"]) for entry in told] == [("error", id)]


@pytest.mark.parametrize("policy", ["manual", "ack", "reject_on_error"])
async def test_manual_nack_overrides_the_policy_and_the_second_call_is_ignored(
    app: Penstock, policy: str
) -> None:
    @app.subscriber("orders", policy=policy)
    async def on_order(message: Message[int]) -> None:
        message.nack(delay=100)
        message.reject()

    (id,) = await publish(app)
    async with working(app) as worker:
        await until(lambda: worker.settled == 1)
    assert await counters(app, id) == ("scheduled", 1, 1)


async def test_a_nack_by_hand_follows_the_strategy(app: Penstock) -> None:
    @app.subscriber("orders", policy="manual", retry=constant(100, max_attempts=2))
    async def on_order(message: Message[int]) -> None:
        await message.nack()

    (id,) = await publish(app)
    async with working(app) as worker:
        await until(lambda: worker.settled == 1)
    assert await counters(app, id) == ("scheduled", 1, 1)


@pytest.mark.parametrize(("verb", "state"), [("ack", "completed"), ("reject", "dead")])
async def test_settling_by_hand_may_be_awaited(app: Penstock, verb: str, state: str) -> None:
    @app.subscriber("orders", policy="manual")
    async def on_order(message: Message[int]) -> None:
        await getattr(message, verb)()

    (id,) = await publish(app)
    async with working(app) as worker:
        await until(lambda: worker.settled + worker.completed == 1)
    assert await counters(app, id) == (state, 1, 1)


async def test_max_total_delay_reached_is_failed_though_attempts_remain(
    app: Penstock, engine: Engine
) -> None:
    strategy = constant(10, max_attempts=100, max_total_delay=25)

    @app.subscriber("orders", retry=strategy)
    async def on_order(message: Message[int]) -> None:
        raise ValueError("boom")

    (id,) = await publish(app)
    async with turning(app) as (worker, agents):
        for runs in (1, 2, 3):
            await until(partial(has_settled, worker, runs))
            await engine.travel(10)
            agents.nudge("scheduler")
    assert await counters(app, id) == ("dead", 3, 3)
    assert (await record(app, id)).reason == "retries_exhausted"


@pytest.mark.parametrize("kind", ["single", "thread", "batch"])
async def test_with_batch_10_and_overfetch_1_5_never_more_than_15_are_acquired_and_not_started(
    app: Penstock, kind: str
) -> None:
    most = 0

    async def single(message: Message[int]) -> None:
        await asyncio.sleep(0.001)
        look()

    def thread(message: Message[int]) -> None:
        look()

    async def batch(messages: list[Message[int]]) -> None:
        await asyncio.sleep(0.001)
        look()

    def look() -> None:
        nonlocal most
        most = max(most, sum(lane.waiting for lane in worker.routes.executors))

    match kind:
        case "batch":
            app.subscriber("orders", batch=3)(batch)
        case "thread":
            app.subscriber("orders")(thread)
        case _:
            app.subscriber("orders")(single)
    await publish(app, 10)
    broker = await app.broker()
    await broker.publish_many([Draft(queue="orders", body=b"1")] * 300)
    async with working(app, concurrency=2, fetch_batch_size=10, overfetch_factor=1.5) as worker:
        await until(lambda: worker.completed == 310)
    assert 2 < most <= 15


async def test_after_a_full_fetch_the_next_comes_at_the_min_interval(
    app: Penstock, faults: Faults
) -> None:
    @app.subscriber("orders")
    async def on_order(message: Message[int]) -> None: ...

    await publish(app, 30)
    loop = asyncio.get_running_loop()
    began = loop.time()
    options: dict[str, Any] = {"fetch_batch_size": 10, "min_interval": 0.2, "max_interval": 30}
    async with working(app, concurrency=10, **options) as worker:
        await until(lambda: worker.completed == 30)
        assert loop.time() - began >= 0.4
        assert faults.counts["claim"] == 3


async def test_after_a_part_full_fetch_the_next_comes_at_the_max_interval(
    app: Penstock, faults: Faults
) -> None:
    @app.subscriber("orders")
    async def on_order(message: Message[int]) -> None: ...

    await publish(app)
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with working(app, max_interval=0.1) as worker:
        await until(lambda: worker.completed == 1 and faults.counts["claim"] == 6)
        # Two of them may have been wake-ups that came late.
        assert loop.time() - began >= 0.3


async def test_the_poll_interval_of_a_queue_comes_before_that_of_the_worker(
    app: Penstock, faults: Faults
) -> None:
    app.queue("orders", poll_interval=0.05)

    @app.subscriber("orders")
    async def on_order(message: Message[int]) -> None: ...

    async with working(app, max_interval=30):
        # Fewer than that could be wake-ups.
        await until(lambda: faults.counts["claim"] >= 6)


async def test_after_a_part_full_fetch_the_next_comes_early_with_a_wake_up(
    app: Penstock,
) -> None:
    @app.subscriber("orders")
    async def on_order(message: Message[int]) -> None: ...

    await publish(app)
    async with working(app, max_interval=30) as worker:
        await until(lambda: worker.completed == 1 and worker.fetchers[0].resting)
        await publish(app)
        with anyio.fail_after(20):
            await until(lambda: worker.completed == 2)


async def test_two_subscribers_in_two_processes_handle_each_of_10_000_messages_once(
    url: str, start: Start, tmp_path: Path
) -> None:
    app = Penstock(url)
    app.queue("orders", preset="faststream")
    runs = tmp_path / "runs"
    broker = await app.broker()
    start(lease=30.0), start(lease=30.0)

    async def both_there() -> bool:
        return len(await broker.workers()) == 2

    async def drained() -> bool:
        return set(await places(app)) == {"ended"}

    await until_true(both_there)
    draft = Draft(queue="orders", body=f'"{runs}"'.encode())
    published = [each for _ in range(10) for each in await broker.publish_many([draft] * 1_000)]
    await until_true(drained)
    assert Counter(runs.read_text().split()) == Counter(str(each.id) for each in published)
    workers = {(await record(app, each.id)).timeline[0].consumer for each in published[::100]}
    assert len(workers) == 2
    await app.aclose()


async def test_processing_older_than_the_stuck_timeout_is_pending_again_with_its_counters(
    app: Penstock, engine: Engine
) -> None:
    app.queue("stuck", preset="faststream", lease=60)
    broker = await app.broker()
    await app.ensure_queues(broker, ["stuck"])
    id = (await app.apublish(Draft(queue="stuck"))).id
    await broker.claim("stuck", consumer="gone")

    async def given_back() -> bool:
        await engine.travel(4)
        agents.nudge("visibility_timeout_enforcer")
        return (await record(app, id)).state is State.READY

    began = await broker.now()
    async with app.agents(broker) as agents:
        await until_true(given_back)
    assert await broker.now() - began > 60 * SECOND
    assert await counters(app, id) == ("ready", 0, 1)


async def test_stop_during_work_gives_back_the_unstarted_and_finishes_the_running(
    app: Penstock,
) -> None:
    go_on = asyncio.Event()

    @app.subscriber("orders")
    async def on_order(message: Message[int]) -> None:
        await go_on.wait()

    async def finish_the_running(worker: Worker) -> None:
        await until(lambda: len(worker.held) == 2)
        go_on.set()

    claim_for_all(app, "orders")
    ids = await publish(app, 5)
    async with (
        asyncio.TaskGroup() as aside,
        working(app, concurrency=2, fetch_batch_size=10) as worker,
    ):
        await until(lambda: len(worker.held) > 2)
        aside.create_task(finish_the_running(worker))
    states = [await counters(app, id) for id in ids]
    assert sorted(states) == [("completed", 1, 1)] * 2 + [("ready", 0, 0)] * 3


async def test_if_the_graceful_timeout_passes_finished_ones_are_still_flushed(
    app: Penstock,
) -> None:
    @app.subscriber("orders")
    async def on_order(message: Message[int]) -> None:
        if message.id == ids[0]:
            await asyncio.sleep(100)

    ids = await publish(app, 3)
    async with working(app, grace=0.05) as worker:
        await until(lambda: worker.finished == 2)
    assert [await counters(app, id) for id in ids] == [
        ("ready", 0, 0),
        ("completed", 1, 1),
        ("completed", 1, 1),
    ]


@OF_DATABASES
async def test_a_missing_column_is_reported_at_start(url: str) -> None:
    async with await stores.open(url):
        pass
    tables = "penstock." if url.startswith("postgresql:") else "penstock_"
    with closing(connect(url)) as db:
        db.cursor().execute(f"ALTER TABLE {tables}lease DROP COLUMN note")
        db.commit()
    app = Penstock(url)

    @app.subscriber("orders")
    async def on_order(message: Message[int]) -> None: ...

    with pytest.raises(StoreUnusable, match=r"lacks column lease\.note; restore a backup"):
        await app.worker()


async def test_messages_come_by_the_time_they_are_due_over_all_queues(
    app: Penstock, engine: Engine
) -> None:
    seen: list[str] = []
    for name in ("first", "second"):
        app.queue(name, preset="faststream")

        @app.subscriber(name)
        async def on_order(message: Message[str]) -> None:
            seen.append(message.body)

    for number, name in enumerate(["second", "first", "second", "first"]):
        await engine.travel(1)
        await app.apublish(Draft(queue=name, body=b'"%d %s"' % (number, name.encode())))
    async with working(app, concurrency=1) as worker:
        await until(lambda: worker.completed == 4)
    assert seen == ["0 second", "1 first", "2 second", "3 first"]
