"""The words of FastStream: queues, workers, deliveries, strategies, routers, publishers."""

import asyncio
import sqlite3
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from penstock import AckPolicy, Context, Draft, Message, Penstock, Router, constant
from penstock.errors import InvalidInput
from penstock.model.message import State, Verb
from tests.app.scenes import counters, record, until, working

pytestmark = pytest.mark.anyio


async def test_one_subscriber_serves_several_queues(app: Penstock) -> None:
    seen: list[tuple[str, int]] = []

    @app.subscriber("a", "b")
    async def on_either(message: Message[int]) -> None:
        seen.append((message.context.queue, message.body))

    @app.subscriber(["c", "d"])
    async def on_other(message: Message[int]) -> None:
        seen.append((message.context.queue, message.body))

    for number, queue in enumerate("abcd"):
        await app.apublish(number, queue=queue)
    async with working(app) as worker:
        await until(lambda: worker.completed == 4)
    assert sorted(seen) == [("a", 0), ("b", 1), ("c", 2), ("d", 3)]


@pytest.mark.parametrize("queues", [(), ([],), ("a", "a"), ("a b",), ({"a": 1}, 3)])
async def test_queues_that_cannot_be_are_refused(app: Penstock, queues: Any) -> None:
    with pytest.raises((InvalidInput, TypeError)):
        app.subscriber(*queues)


async def test_max_workers_bounds_one_subscriber_over_all_its_queues(app: Penstock) -> None:
    running, most, go = 0, 0, asyncio.Event()

    @app.subscriber("a", "b", max_workers=2)
    async def on_order(message: Message[int]) -> None:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await go.wait()
        running -= 1

    @app.subscriber("free")
    async def on_free(message: Message[int]) -> None: ...

    for number in range(6):
        await app.apublish(number, queue="ab"[number % 2])
    async with working(app, concurrency=10) as worker:
        await until(lambda: running == 2)
        await app.apublish(0, queue="free")
        await until(lambda: worker.completed == 1)
        go.set()
        await until(lambda: worker.completed == 7)
    assert most == 2


async def test_a_message_delivered_more_often_than_a_subscriber_allows_is_not_run(
    app: Penstock,
) -> None:
    runs = 0

    @app.subscriber("orders", max_deliveries=2, retry_strategy=constant(0))
    async def on_order(message: Message[int]) -> None:
        nonlocal runs
        runs += 1
        raise ValueError("no")

    id = (await app.apublish(1, queue="orders")).id
    async with working(app) as worker:
        await until(lambda: worker.settled == 3)
    found = await record(app, id)
    assert (runs, found.state, found.error) == (2, State.DEAD, "delivered 3 times")


async def test_without_a_strategy_a_faststream_queue_runs_a_message_once(app: Penstock) -> None:
    app.queue("orders", preset="faststream")

    @app.subscriber("orders", ack_policy=AckPolicy.NACK_ON_ERROR, retry_strategy=None)
    async def on_order(message: Message[int]) -> None:
        raise ValueError("no")

    id = (await app.apublish(1, queue="orders")).id
    with structlog.testing.capture_logs() as logged:
        async with working(app) as worker:
            await until(lambda: worker.settled == 1)
    assert await counters(app, id) == ("dead", 1, 1)
    assert [each["queue"] for each in logged if each["event"] == "no_retry_strategy"] == ["orders"]


@pytest.mark.parametrize("preset", ["default", "faststream"])
async def test_a_strategy_without_a_limit_has_none(app: Penstock, preset: str) -> None:
    app.queue("orders", preset=preset)

    @app.subscriber("orders", retry=constant(0))
    async def on_order(message: Message[int]) -> None:
        if message.attempt <= 20:
            raise ValueError("not yet")

    id = (await app.apublish(1, queue="orders")).id
    limited = (await app.apublish(1, queue="orders", max_attempts=3)).id
    async with working(app) as worker:
        await until(lambda: worker.completed == 1)
        await until(lambda: worker.settled == 23)
    assert await counters(app, id) == ("completed", 21, 21)
    assert await counters(app, limited) == ("dead", 3, 3)


class Until:
    """A strategy as FastStream defines it: by the times of the attempts."""

    def __init__(self) -> None:
        self.asked: list[tuple[datetime, datetime, int]] = []

    def get_next_attempt_at(
        self, *, first_attempt_at: datetime, last_attempt_at: datetime, attempts_count: int
    ) -> datetime | None:
        self.asked.append((first_attempt_at, last_attempt_at, attempts_count))
        return last_attempt_at if attempts_count < 3 else None


async def test_a_strategy_may_go_by_the_times_of_the_attempts(app: Penstock) -> None:
    strategy = Until()

    @app.subscriber("orders", retry_strategy=strategy)
    async def on_order(message: Message[int]) -> None:
        raise ValueError("no")

    id = (await app.apublish(1, queue="orders")).id
    async with working(app) as worker:
        await until(lambda: worker.settled == 3)
    firsts, lasts, counts = zip(*strategy.asked, strict=True)
    found = await record(app, id)
    began = [datetime.fromtimestamp((row.claimed_at or 0) / 1e6, UTC) for row in found.timeline]
    assert (found.state, counts) == (State.DEAD, (1, 2, 3))
    assert (set(firsts), list(lasts)) == ({began[0]}, began)


async def test_a_strategy_sees_the_attempts_since_the_last_wait(app: Penstock) -> None:
    strategy = Until()

    @app.task(queue="orders", retry=strategy)
    async def order(context: Context) -> None:
        await context.sleep(0.01)
        raise ValueError("no")

    job = await order.aenqueue()
    async with working(app) as worker, app.agents(await app.broker()):
        await until(lambda: worker.settled >= 3 and len(strategy.asked) == 3)
    found = await record(app, job.id)
    assert found.state is State.DEAD
    claims = [datetime.fromtimestamp((row.claimed_at or 0) / 1e6, UTC) for row in found.timeline]
    waits = [row.verb == Verb.WAIT for row in found.timeline]
    assert waits == [True, False, False, False]
    assert [(first, last) for first, last, _ in strategy.asked] == [
        (claims[1], last) for last in claims[1:]
    ]


@pytest.mark.parametrize("policy", ["reject_on_error", "ack", "ack_first"])
async def test_retry_options_that_have_no_effect_are_warned_of(app: Penstock, policy: str) -> None:
    for options in ({"retry": constant(1)}, {"retry_on": (OSError,)}, {"no_retry_on": (OSError,)}):
        with pytest.warns(UserWarning, match=f"no effect with policy '{policy}'"):

            @app.subscriber("orders", policy=policy, **options)
            async def on_order(message: Message[int]) -> None: ...

        with pytest.warns(UserWarning, match="no effect"):
            app.task(name=f"t{options}", policy=policy, **options)(lambda: None)


async def test_options_given_twice_or_unknown_are_refused(app: Penstock) -> None:
    with pytest.raises(InvalidInput, match="ack_policy and policy are the same option"):
        app.subscriber("orders", policy="ack", ack_policy="ack")
    with pytest.raises(InvalidInput, match="no option named fetch_batch; expected one of type,"):
        app.subscriber("orders", fetch_batch=3)  # type: ignore[call-arg]  # refused at run time
    with pytest.raises(InvalidInput, match="omit max_workers"):

        @app.subscriber("orders", batch=2, max_workers=3)
        async def on_orders(messages: list[Message[int]]) -> None: ...


async def test_a_router_puts_its_prefix_before_its_queues(app: Penstock) -> None:
    seen: list[str] = []
    inner = Router("eu.")
    router = Router(prefix="shop.")

    @inner.subscriber("orders", max_deliveries=3)
    @router.subscriber("orders", "returns")
    async def on_order(message: Message[int]) -> None:
        seen.append(message.context.queue)

    router.include_router(inner)
    app.include_router(router, prefix="test.")
    queues = ["test.shop.orders", "test.shop.returns", "test.shop.eu.orders"]
    assert [handler.queue for handler in app.handlers()] == queues
    for queue in queues:
        await app.apublish(1, queue=queue)
    async with working(app) as worker:
        await until(lambda: worker.completed == 3)
    assert sorted(seen) == sorted(queues)


async def test_a_publisher_sends_on_what_its_function_returns(filed: Penstock) -> None:
    app = filed
    seen: list[int] = []

    @app.subscriber("numbers")
    @app.publisher("doubled", priority=3)
    async def double(message: Message[int]) -> int | None:
        return message.body * 2 if message.body else None

    @app.subscriber("doubled")
    @app.publisher("told")
    def tell(message: Message[int]) -> str:
        seen.append(message.body)
        return f"it is {message.body}"

    @app.subscriber("told")
    async def listen(message: Message[str]) -> None:
        assert message.body == "it is 42"

    for number in (21, 0):
        await app.apublish(number, queue="numbers")
    async with working(app) as worker:
        await until(lambda: worker.completed == 4)
    assert seen == [42]


async def test_a_value_is_published_as_json_and_bytes_as_they_are(app: Penstock) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    value = await app.apublish({"at": due}, "order", queue="orders", run_at=due, headers={"a": "b"})
    raw = await app.apublish(b"\xff", queue="orders")
    found, plain = await record(app, value.id), (await record(app, raw.id)).message
    assert (found.message.type, found.message.meta.headers) == ("order", {"a": "b"})
    assert found.message.body == b'{"at":"%s"}' % due.isoformat().replace("+00:00", "Z").encode()
    assert found.due_at == int(due.timestamp() * 1e6)
    assert (plain.body, plain.meta.content_type) == (b"\xff", "application/octet-stream")
    with pytest.raises(InvalidInput, match="queue cannot be combined with a Draft"):
        await app.apublish(Draft(body=b"1"), queue="orders")
    with pytest.raises(InvalidInput, match="message: "):
        await app.apublish(object(), queue="orders")


def test_a_value_is_published_in_the_transaction_of_its_caller(tmp_path: Path) -> None:
    app = Penstock(f"sqlite:///{tmp_path}/queue.db")
    app.publish({"n": 0}, queue="orders")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connection = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
        for number, end in ((1, "ROLLBACK"), (2, "COMMIT")):
            connection.execute("BEGIN IMMEDIATE")
            app.publish({"n": number}, queue="orders", connection=connection)
            connection.execute(end)
        connection.close()

    async def bodies() -> list[bytes]:
        found = await (await app.broker()).admin.find("orders")
        return [each.message.body for each in found]

    assert app.run(bodies()) == [b'{"n":2}', b'{"n":0}']
    app.close()
