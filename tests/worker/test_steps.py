"""Durable steps in real workers: runs wait without a slot and go on where they stopped."""

import asyncio
from typing import Any

import pytest

from penstock import Context, Draft, Message, Penstock
from penstock.errors import InvalidState
from penstock.model.message import State

pytestmark = pytest.mark.anyio
LIMIT_S = 60.0


async def wait_for(app: Penstock, id: int, state: State) -> None:
    broker = await app.broker()
    async with asyncio.timeout(LIMIT_S):
        while (await broker.admin.get(id)).state is not state:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


async def test_runs_wait_and_go_on_on_every_store(every_url: str) -> None:
    app = Penstock(every_url)
    calls: list[str] = []

    def note(name: str) -> str:
        calls.append(name)
        return name

    @app.task(queue="parts")
    def part(number: int) -> int:
        return number

    @app.task(queue="main")
    async def main(context: Context) -> list[Any]:
        first = await context.step("first", note, "a")
        await context.sleep(0.2)
        parts = await context.gather(part.call(1), part.call(2))
        answer = await context.signal("go", timeout="1h")
        await context.step("last", note, "b")
        return [first, [each.value for each in parts], answer]

    @app.task(queue="main")
    def blocking(context: Context) -> str:
        kept = context.sync.step("kept", note, "c")
        context.sync.sleep(0.1)
        return kept

    async with await app.worker() as _, app.agents(await app.broker()):
        job, other = await main.aenqueue(), await blocking.aenqueue()
        assert await other.aresult(LIMIT_S) == "c"
        await wait_for(app, job.id, State.SCHEDULED)
        await app.asignal(job.id, "go", 42)
        assert await job.aresult(LIMIT_S) == ["a", [1, 2], 42]
        assert sorted(calls) == ["a", "b", "c"]


async def test_a_message_that_was_acked_first_cannot_wait() -> None:
    app = Penstock("sqlite://")

    @app.task(queue="main", policy="ack_first")
    async def early(context: Context) -> None:
        await context.sleep(1)

    @app.task(queue="main", policy="reject_on_error")
    async def fine(context: Context) -> None:
        await context.sleep(0.01)

    async with await app.worker() as worker, app.agents(await app.broker()):
        job = await early.aenqueue()
        good = await fine.aenqueue()
        await wait_for(app, good.id, State.COMPLETED)
        await wait_for(app, job.id, State.COMPLETED)
        assert worker.lost == 0


async def note_refusal(context: Context, refused: list[str]) -> None:
    try:
        await context.sleep(1)
    except InvalidState as error:
        refused.append(str(error).partition(";")[0])


async def wait_for_refusal(app: Penstock, refused: list[str]) -> str:
    async with await app.worker(), asyncio.timeout(LIMIT_S):
        while not refused:  # noqa: ASYNC110 - in a worker
            await asyncio.sleep(0.01)
    return refused[0]


@pytest.mark.parametrize("policy", ["ack_first", "manual"])
async def test_steps_are_refused_by_the_ack_policy(policy: str) -> None:
    app = Penstock("sqlite://")
    refused: list[str] = []

    @app.task(policy=policy)
    async def order(context: Context) -> None:
        await note_refusal(context, refused)
        context.ack()

    await order.aenqueue()
    found = await wait_for_refusal(app, refused)
    assert found == f"durable steps cannot be used with the ack policy {policy}"


@pytest.mark.parametrize("batch", [False, True])
async def test_steps_are_refused_in_subscribers(batch: bool) -> None:
    app = Penstock("sqlite://")
    refused: list[str] = []

    async def on_order(message: Message[int]) -> None:
        await note_refusal(message.context, refused)

    async def on_orders(messages: list[Message[int]]) -> None:
        await note_refusal(messages[0].context, refused)

    if batch:
        app.subscriber("orders", batch=2)(on_orders)
    else:
        app.subscriber("orders")(on_order)
    await app.apublish(Draft(queue="orders", body=b"1"))
    assert await wait_for_refusal(app, refused) == "durable steps cannot be used by a subscriber"
