"""Handlers for the messages of a queue, one at a time or in batches."""

from typing import Any

import msgspec
import pytest

from penstock import Draft, Message, Penstock
from penstock.errors import InvalidInput
from penstock.model.message import State
from tests.app.scenes import counters, record, until, working

pytestmark = pytest.mark.anyio


class Order(msgspec.Struct):
    item: str
    count: int = 1


async def publish(app: Penstock, *bodies: bytes, type: str = "message") -> list[int]:
    drafts = [Draft(queue="orders", type=type, body=body) for body in bodies]
    return [(await app.apublish(draft)).id for draft in drafts]


async def test_a_subscriber_gets_messages_of_any_type_and_their_body_by_its_annotation(
    app: Penstock,
) -> None:
    seen: list[tuple[str, Order, bytes]] = []

    @app.subscriber("orders")
    async def on_order(message: Message[Order]) -> None:
        seen.append((message.type, message.body, message.raw))
        assert message.body is message.body

    ids = await publish(app, b'{"item":"pipe"}', type="a")
    ids += await publish(app, b'{"item":"valve","count":2}', type="b")
    async with working(app) as worker:
        await until(lambda: worker.completed == 2)
    assert seen == [
        ("a", Order("pipe"), b'{"item":"pipe"}'),
        ("b", Order("valve", 2), b'{"item":"valve","count":2}'),
    ]
    assert [await counters(app, id) for id in ids] == [("completed", 1, 1)] * 2


async def test_a_subscriber_of_one_type_beside_one_of_all_others(app: Penstock) -> None:
    seen: list[str] = []

    @app.subscriber("orders", type="urgent")
    async def on_urgent(message: Message[Any]) -> None:
        seen.append(f"urgent {message.body}")

    @app.subscriber("orders")
    def on_any(message: Message[bytes]) -> None:
        seen.append(f"any {message.body!r}")

    await publish(app, b"1", type="urgent")
    await publish(app, b"\xff not json", type="other")
    async with working(app) as worker:
        await until(lambda: worker.completed == 2)
    assert sorted(seen) == ["any b'\\xff not json'", "urgent 1"]


async def test_a_message_knows_what_it_came_with(app: Penstock) -> None:
    seen: list[tuple[int, dict[str, str], int, str]] = []

    @app.subscriber("orders")
    async def on_order(message: Message[int]) -> None:
        seen.append((message.id, message.headers, message.attempt, message.context.queue))

    id = (await app.apublish(Draft(queue="orders", body=b"1", headers={"a": "b"}))).id
    async with working(app) as worker:
        await until(lambda: worker.completed == 1)
    assert seen == [(id, {"a": "b"}, 1, "orders")]


async def test_a_body_that_does_not_fit_goes_to_the_dead_letters_at_once(app: Penstock) -> None:
    @app.subscriber("orders")
    async def on_order(message: Message[Order]) -> None:
        print(message.body.item)

    (id,) = await publish(app, b'{"count":"many"}')
    async with working(app) as worker:
        await until(lambda: worker.settled == 1)
    found = await record(app, id)
    assert (found.state, found.reason, found.attempts) == (State.DEAD, "rejected", 1)
    assert "message for" in (found.error or "")


async def test_a_batch_takes_what_is_there_up_to_its_size(app: Penstock) -> None:
    sizes: list[int] = []
    bodies: list[int] = []

    @app.subscriber("orders", batch=10)
    async def on_orders(messages: list[Message[int]]) -> None:
        sizes.append(len(messages))
        bodies.extend(message.body for message in messages)

    await publish(app, *(b"%d" % number for number in range(25)))
    async with working(app) as worker:
        await until(lambda: worker.completed == 25)
    assert max(sizes) == 10
    assert sum(sizes) == 25
    assert bodies == list(range(25))


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_each_message_of_a_batch_has_its_own_outcome(app: Penstock, kind: str) -> None:
    def outcomes(messages: list[Message[int]]) -> list[Exception | None]:
        return [ValueError("odd") if message.body % 2 else None for message in messages]

    async def on_orders(messages: list[Message[int]]) -> list[Exception | None]:
        return outcomes(messages)

    app.subscriber("orders", batch=10, policy="reject_on_error")(
        on_orders if kind == "async" else outcomes
    )
    ids = await publish(app, b"0", b"1", b"2", b"3")
    async with working(app) as worker:
        await until(lambda: worker.completed + worker.settled == 4)
    assert [(await record(app, id)).state for id in ids] == [
        State.COMPLETED,
        State.DEAD,
        State.COMPLETED,
        State.DEAD,
    ]
    assert (await record(app, ids[1])).error == "ValueError: odd"


async def test_messages_of_a_batch_are_settled_by_hand(app: Penstock) -> None:
    @app.subscriber("orders", batch=10, policy="manual")
    async def on_orders(messages: list[Message[int]]) -> None:
        for message in messages:
            match message.body:
                case 0:
                    message.ack()
                case 1:
                    message.nack(delay=100, error="later")
                case 2:
                    message.reject("never")

    ids = await publish(app, b"0", b"1", b"2", b"3")
    async with working(app) as worker:
        await until(lambda: worker.completed + worker.settled == 4)
    found = [await record(app, id) for id in ids]
    assert [(each.state, each.error) for each in found] == [
        (State.COMPLETED, None),
        (State.SCHEDULED, "later"),
        (State.DEAD, "never"),
        (State.DEAD, "the handler ended without ack, nack or reject"),
    ]


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        ([None], "ValueError: 1 outcomes for 2 messages"),
        ([True, False], "ValueError: an outcome is an error or None, not bool"),
        (5, "TypeError: 'int' object is not iterable"),
    ],
)
async def test_an_outcome_that_fits_nobody_fails_all(
    app: Penstock, outcome: object, error: str
) -> None:
    @app.subscriber("orders", batch=10, policy="reject_on_error")
    async def on_orders(messages: list[Message[int]]) -> object:
        return outcome

    ids = await publish(app, b"0", b"1")
    async with working(app) as worker:
        await until(lambda: worker.settled == 2)
    assert [(await record(app, id)).error for id in ids] == [error] * 2


async def test_a_body_that_does_not_fit_leaves_its_batch_alone(app: Penstock) -> None:
    seen: list[str] = []

    @app.subscriber("orders", batch=10)
    async def on_orders(messages: list[Message[Order]]) -> list[Exception | None]:
        seen.extend(message.body.item for message in messages)
        return [None for _ in messages]

    ids = await publish(app, b'{"item":"a"}', b"not json", b'{"item":"b"}')
    async with working(app) as worker:
        await until(lambda: worker.completed + worker.settled == 3)
    assert seen == ["a", "b"]
    found = [(await record(app, id)).state for id in ids]
    assert found == [State.COMPLETED, State.DEAD, State.COMPLETED]


async def test_a_batch_that_raises_fails_all(app: Penstock) -> None:
    @app.subscriber("orders", batch=10, policy="reject_on_error")
    def on_orders(messages: list[Message[int]]) -> None:
        next(iter([]))

    ids = await publish(app, b"0", b"1")
    async with working(app) as worker:
        await until(lambda: worker.settled == 2)
    assert {(await record(app, id)).state for id in ids} == {State.DEAD}


def too_many(message: Message[int], other: int) -> None: ...


def bare(order: Order) -> None: ...


def single(message: Message[int]) -> None: ...


def several(messages: list[Message[int]]) -> None: ...


@pytest.mark.parametrize(
    ("function", "batch", "text"),
    [
        (too_many, None, "one parameter"),
        (bare, None, r"must be a Message\[...\]"),
        (single, 10, r"must be a list\[Message\[...\]\]"),
        (several, None, r"must be a Message\[...\]"),
        (several, 0, "batch must be 1 or more"),
    ],
)
async def test_a_function_that_is_no_subscriber_is_refused(
    function: object, batch: int | None, text: str
) -> None:
    assert callable(function)
    with pytest.raises(InvalidInput, match=text):
        Penstock("sqlite://").subscriber("orders", batch=batch)(function)


async def test_two_subscribers_for_the_same_messages_are_refused(app: Penstock) -> None:
    app.subscriber("orders")(single)
    app.subscriber("orders")(single)
    worker = await app.worker()
    with pytest.raises(InvalidInput, match="two handlers for messages of any type"):
        await worker.start()
