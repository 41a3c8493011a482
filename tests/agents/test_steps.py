"""Durable steps of tasks, in virtual time."""

import asyncio
import contextlib
from typing import Any

import pytest
from msgspec import Struct

from penstock import Context, Penstock, constant
from penstock.errors import ResultGone, WaitsForItself
from penstock.model.message import Draft, State
from penstock.testing.simulation import Simulation

pytestmark = pytest.mark.anyio


class Charge(Struct):
    order: int
    amount: float


async def test_a_job_of_fourteen_days_runs_in_virtual_time() -> None:
    app = Penstock("sqlite://")
    calls: list[str] = []

    def find_charge(order: int) -> Charge:
        calls.append("charge")
        return Charge(order, 12.5)

    async def pay_back(charge: Charge) -> str:
        calls.append("pay-back")
        return f"paid {charge.amount}"

    @app.task(queue="refunds")
    async def refund(context: Context, order: int) -> str:
        charge = await context.step("charge", find_charge, order)
        assert isinstance(charge, Charge)
        await context.sleep("14d")
        return await context.step("pay-back", pay_back, charge)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await refund.aenqueue(7)
        await simulation.advance("13d")
        assert (await job.astatus(), calls) == (State.SCHEDULED, ["charge"])
        steps = (await simulation.broker.waits.steps(job.id)).steps
        assert [(step.name, step.done) for step in steps] == [("charge", True), ("sleep", False)]
        await simulation.advance("1d1s")
        assert await job.aresult() == "paid 12.5"
        assert calls == ["charge", "pay-back"]
        steps = (await simulation.broker.waits.steps(job.id)).steps
        assert [step.name for step in steps if step.done] == ["charge", "sleep", "pay-back"]


async def test_a_signal_resumes_a_run_and_is_received_once() -> None:
    app = Penstock("sqlite://")

    @app.task
    async def parcel(context: Context) -> list[Any]:
        first = await context.signal("arrived", timeout="14d")
        second = await context.signal("arrived", timeout="1h")
        return [first, second]

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await parcel.aenqueue()
        await simulation.advance("1d")
        await app.asignal(job.id, "arrived", {"at": "dock 4"})
        await simulation.run_until_idle()
        assert await job.astatus() is State.SCHEDULED
        await simulation.advance("1h1s")
        assert await job.aresult() == [{"at": "dock 4"}, None]


async def test_a_run_gathers_the_results_of_its_children() -> None:
    app = Penstock("sqlite://")
    runs: list[int] = []

    @app.task(queue="parts")
    def double(number: int) -> int:
        runs.append(number)
        return 2 * number

    @app.task
    async def total(context: Context) -> int:
        outcomes = await context.gather(*(double.call(number) for number in range(5)))
        return sum(outcome.value for outcome in outcomes)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await total.aenqueue()
        await simulation.run_until_idle()
        assert (await job.aresult(), runs) == (20, [0, 1, 2, 3, 4])


async def test_a_failed_child_is_an_outcome() -> None:
    app = Penstock("sqlite://")

    @app.task(queue="parts", max_attempts=1)
    def fail() -> None:
        raise ValueError("broken")

    @app.task(queue="parts")
    def work() -> str:
        return "fine"

    @app.task
    async def try_both(context: Context) -> list[str | None]:
        first = await context.first(fail.call(), work.call())
        assert first is not None
        return [first.value]

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await try_both.aenqueue()
        await simulation.run_until_idle()
        assert await job.aresult() == ["fine"]


async def test_concurrent_steps_keep_the_order_of_their_calls() -> None:
    app = Penstock("sqlite://")
    calls: list[int] = []

    async def slow(number: int) -> int:
        await asyncio.sleep(0.01 * (3 - number))
        calls.append(number)
        return number

    @app.task
    async def fan(context: Context) -> list[int]:
        found = await asyncio.gather(*(context.step("slow", slow, n) for n in range(3)))
        await context.sleep(1)
        return found

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await fan.aenqueue()
        await simulation.advance(2)
        assert await job.aresult() == [0, 1, 2]
        assert sorted(calls) == [0, 1, 2]


@pytest.mark.parametrize("sleeps_first", [True, False])
async def test_a_step_beside_a_wait_has_its_effect_once(sleeps_first: bool) -> None:
    app = Penstock("sqlite://")
    calls: list[str] = []

    async def charge() -> str:
        calls.append("begun")
        await asyncio.sleep(0.01)
        calls.append("charged")
        return "paid"

    @app.task
    async def order(context: Context) -> list[Any]:
        both = [context.sleep(60), context.step("charge", charge)]
        return list(await asyncio.gather(*(both if sleeps_first else reversed(both))))

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await order.aenqueue()
        await simulation.advance(90)
        assert set(await job.aresult()) == {None, "paid"}
        assert calls == ["begun", "charged"]


async def test_a_call_after_a_wait_began_leaves_running_steps_their_time() -> None:
    app = Penstock("sqlite://")
    calls: list[str] = []

    async def charge() -> None:
        calls.append("begun")
        await asyncio.sleep(0.05)
        calls.append("charged")

    @app.task
    async def order(context: Context) -> None:
        async def ship() -> None:
            await asyncio.sleep(0.01)
            await context.step("ship", calls.append, "shipped")

        await asyncio.gather(context.step("charge", charge), context.sleep("1d"), ship())

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await order.aenqueue()
        await simulation.run_until_idle()
        assert calls == ["begun", "charged"]
        await simulation.advance("2d")
        assert (await job.astatus(), calls[2:]) == (State.COMPLETED, ["shipped"])


async def test_a_step_that_fails_beside_a_wait_is_a_failure() -> None:
    app = Penstock("sqlite://")
    tries: list[int] = []

    async def ship() -> str:
        tries.append(1)
        await asyncio.sleep(0.01)
        if len(tries) < 2:
            raise OSError("no truck")
        return "shipped"

    @app.task
    async def order(context: Context) -> str:
        shipped, _ = await asyncio.gather(context.step("ship", ship), context.sleep("1h"))
        return str(shipped)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await order.aenqueue()
        await simulation.advance("3h")
        assert (await job.aresult(), len(tries)) == ("shipped", 2)


async def test_a_wait_inside_a_step_runs_the_step_again() -> None:
    app = Penstock("sqlite://")
    runs: list[int] = []

    @app.task
    async def order(context: Context) -> int:
        async def charge() -> int:
            runs.append(1)
            await context.sleep("1h")
            return 7

        return await context.step("charge", charge)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await order.aenqueue()
        await simulation.advance("2h")
        assert (await job.aresult(), len(runs)) == (7, 2)


async def test_a_failed_step_is_run_again_and_those_before_it_are_not() -> None:
    app = Penstock("sqlite://")
    calls: list[str] = []

    def charge() -> int:
        calls.append("charge")
        return 1

    def ship() -> int:
        calls.append("ship")
        if calls.count("ship") < 3:
            raise OSError("no truck")
        return 2

    @app.task(max_attempts=5)
    async def order(context: Context) -> int:
        return await context.step("charge", charge) + await context.step("ship", ship)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await order.aenqueue()
        await simulation.advance("1h")
        assert await job.aresult() == 3
        assert calls == ["charge", "ship", "ship", "ship"]


async def test_a_callback_url_counts_from_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PUBLIC_URL", "https://queue.example.org")
    app = Penstock("sqlite://")
    urls: list[str] = []

    @app.task
    async def order(context: Context) -> str:
        await context.sleep("8d")
        urls.append(await context.callback_url("paid"))
        await context.sleep("6d")
        urls.append(await context.callback_url("paid"))
        return str(await context.signal("paid"))

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await order.aenqueue()
        await simulation.advance("14d1m")
        first, again, other = urls
        assert (first, first == other) == (again, False)
        await simulation.broker.waits.signal_by_token(first.rpartition("/")[2], b'"yes"')
        await simulation.run_until_idle()
        assert await job.aresult() == "yes"


async def test_a_swallowed_wait_rejects_the_message() -> None:
    app = Penstock("sqlite://")

    @app.task
    async def greedy(context: Context) -> str:
        with contextlib.suppress(BaseException):
            await context.sleep("1d")
        return "done"

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await greedy.aenqueue()
        await simulation.run_until_idle()
        record = await job.arecord()
        assert record.state is State.DEAD
        assert record.error is not None
        assert "caught Suspend" in record.error


async def test_a_step_of_another_kind_parks_the_message() -> None:
    app = Penstock("sqlite://")
    new: list[bool] = []

    @app.task
    async def changing(context: Context) -> None:
        if new:
            await context.step("sleep", int)
        else:
            await context.sleep(60)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await changing.aenqueue()
        await simulation.run_until_idle()
        new.append(True)
        await simulation.advance(61)
        record = await job.arecord()
        assert (record.state, record.timeline[-1].reason) == (State.SCHEDULED, "CODE_CHANGED")
        await simulation.advance("3h")
        assert await job.astatus() is State.DEAD


async def test_a_handler_in_a_thread_uses_blocking_steps() -> None:
    app = Penstock("sqlite://")
    calls: list[str] = []

    def charge() -> int:
        calls.append("charge")
        return 5

    @app.task
    def order(context: Context) -> int:
        paid = context.sync.step("charge", charge)
        context.sync.sleep("1h")
        return paid

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await order.aenqueue()
        await simulation.advance("2h")
        assert (await job.aresult(), calls) == (5, ["charge"])


async def test_a_step_that_cannot_be_stored_rejects_the_message() -> None:
    app = Penstock("sqlite://")

    @app.task
    async def hoard(context: Context) -> None:
        await context.step("large", lambda: "x" * 1_000_001)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await hoard.aenqueue()
        await simulation.run_until_idle()
        record = await job.arecord()
        assert (record.state, record.error is not None) == (State.DEAD, True)


async def test_an_enqueue_in_a_run_publishes_once() -> None:
    app = Penstock("sqlite://")
    sent: list[str] = []

    @app.task(queue="mail")
    def send(to: str) -> None:
        sent.append(to)

    @app.task
    async def notify(context: Context) -> int:
        id = await context.enqueue(send.call("ann"))
        await context.sleep("1h")
        return id

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await notify.aenqueue()
        await simulation.advance("2h")
        child = await simulation.broker.admin.get(await job.aresult())
        assert (sent, child.message.meta.parent_id) == (["ann"], job.id)


async def test_a_rule_does_not_fire_again_for_what_a_run_enqueues() -> None:
    app = Penstock("sqlite://")

    @app.task(queue="orders")
    def place() -> None: ...

    @app.task(queue="vip", name="check")
    async def check(context: Context) -> int:
        return await context.enqueue(place.call())

    async with Simulation.open() as simulation:
        await simulation.use(app)
        for name in ("orders", "vip"):
            await simulation.broker.admin.ensure_queue(name)
        actions = [{"set": {"type": "check"}}, {"route": "vip"}]
        rule = {"name": "r", "queue": "orders", "when": "message.size >= 0", "do": actions}
        await simulation.broker.rules.save(rule)
        job = await place.aenqueue()
        await simulation.run_until_idle()
        result = await simulation.broker.read_result(job.id)
        child = await simulation.broker.admin.get(int(result or b"0"))
        queue = await simulation.broker.get_queue("orders")
        assert (child.message.queue_id, child.message.meta.path) == (queue.id, ("r@1",))


async def test_a_redrive_from_a_step_forgets_it_and_those_after_it() -> None:
    app = Penstock("sqlite://")
    calls: list[str] = []

    def record(name: str) -> str:
        calls.append(name)
        return name

    @app.task(max_attempts=1)
    async def three(context: Context) -> None:
        for name in ("a", "b", "c"):
            await context.step(name, record, name)
        if calls.count("c") < 2:
            raise ValueError("again")

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await three.aenqueue()
        await simulation.run_until_idle()
        _, forgotten = await simulation.broker.waits.redrive_from(job.id, "b")
        assert [step.name for step in forgotten] == ["b", "c"]
        await simulation.run_until_idle()
        assert (await job.astatus(), calls) == (State.COMPLETED, ["a", "b", "c", "b", "c"])


async def test_explain_says_what_a_message_waits_for() -> None:
    app = Penstock("sqlite://")

    @app.task
    async def patient(context: Context) -> None:
        await context.signal("go", timeout="1h")

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await patient.aenqueue()
        await simulation.run_until_idle()
        (cause,) = await simulation.broker.admin.explain(job.id)
        assert (cause.code, cause.text) == (
            "WAITS",
            "it waits for the signal 'go', at most 1.0 h more",
        )


async def test_explain_names_the_message_that_waits_with_the_key() -> None:
    app = Penstock("sqlite://")

    @app.task(queue="orders")
    async def patient(context: Context) -> None:
        await context.signal("go")

    async with Simulation.open() as simulation:
        await simulation.use(app)
        first = await patient.options(key="k").aenqueue()
        await simulation.run_until_idle()
        second = await patient.options(key="k").aenqueue()
        await simulation.run_until_idle()
        (cause,) = await simulation.broker.admin.explain(second.id)
        assert (cause.code, cause.text) == (
            "KEY_HELD",
            f"its ordering key 'k' is held by message {first.id}, which is scheduled",
        )


async def test_a_signal_after_the_timeout_counts_until_the_resume() -> None:
    app = Penstock("sqlite://")

    @app.task(queue="orders")
    async def parcel(context: Context) -> str | None:
        return await context.signal("arrived", timeout=60, type=str)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await parcel.aenqueue()
        await simulation.run_until_idle()
        await simulation.broker.admin.pause_scope("default")
        await simulation.advance(120)
        assert await job.astatus() is State.READY
        await app.asignal(job.id, "arrived", "dock 4")
        await simulation.broker.admin.pause_scope("default", paused=False)
        await simulation.run_until_idle()
        assert await job.aresult() == "dock 4"


async def test_messages_of_an_older_version_go_on_with_their_code() -> None:
    app = Penstock("sqlite://")

    @app.task(name="refund")
    async def refund_1(context: Context) -> str:
        await context.sleep("1h")
        return "old"

    @app.task(name="refund", version=2)
    async def refund(context: Context) -> str:
        return await context.step("answer", lambda: "new")

    async with Simulation.open() as simulation:
        await simulation.use(app)
        old, new = await refund_1.aenqueue(), await refund.aenqueue()
        await simulation.advance("2h")
        assert [await old.aresult(), await new.aresult()] == ["old", "new"]


async def test_a_message_of_a_version_without_a_handler_is_parked() -> None:
    app = Penstock("sqlite://")

    @app.task(name="refund", version=2)
    async def refund(context: Context) -> str:
        return await context.step("answer", lambda: "new")

    async with Simulation.open() as simulation:
        await simulation.use(app)
        old = await app.apublish(Draft(type="refund"))
        await refund.aenqueue()
        await simulation.run_until_idle()
        record = await simulation.broker.admin.get(old.id)
        assert (record.state, record.reason) == (State.SCHEDULED, "UNKNOWN_TASK")


async def test_a_job_is_cancelled_with_what_it_gathers() -> None:
    app = Penstock("sqlite://")

    @app.task(queue="parts", delay=60)
    def part() -> None: ...

    @app.task
    async def whole(context: Context) -> None:
        await context.gather(part.call(), part.call())

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await whole.aenqueue()
        await simulation.run_until_idle()
        await job.acancel(tree=True)
        found = await simulation.broker.admin.find("parts")
        assert [each.state for each in found] == [State.CANCELLED] * 2


async def test_two_calls_at_once_receive_a_signal_each() -> None:
    app = Penstock("sqlite://")

    @app.task
    async def pair(context: Context) -> list[int]:
        await context.step("begin", lambda: None)
        await context.sleep("1h")
        return list(await asyncio.gather(context.signal("go"), context.signal("go")))

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await pair.aenqueue()
        await simulation.run_until_idle()
        for number in (1, 2):
            await app.asignal(job.id, "go", number)
        await simulation.advance("2h")
        assert await job.aresult() == [1, 2]


async def test_a_step_of_a_thread_is_tried_again() -> None:
    app = Penstock("sqlite://")
    tries: list[int] = []

    def fail_once() -> int:
        tries.append(1)
        if len(tries) < 2:
            raise OSError("not yet")
        return 7

    @app.task
    def paid(context: Context) -> int:
        return context.sync.step("pay", fail_once, retry=constant(0), timeout=60)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await paid.aenqueue()
        await simulation.run_until_idle()
        assert (await job.aresult(), len(tries)) == (7, 2)


async def test_a_child_with_the_ordering_key_of_its_parent_is_refused() -> None:
    app = Penstock("sqlite://")

    @app.task(queue="orders", key="k")
    def pack() -> None: ...

    @app.task(queue="parcels", key="k")
    def send() -> str:
        return "sent"

    @app.task(queue="orders", key="k", max_attempts=1)
    async def order(context: Context) -> None:
        (sent,) = await context.gather(send.call())
        assert sent.value == "sent"
        await context.gather(pack.call())

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await order.aenqueue()
        await simulation.run_until_idle()
        record = await job.arecord()
        assert record.state is State.DEAD
        assert WaitsForItself.__name__ in (record.error or "")
        found = [await simulation.broker.admin.find(queue) for queue in ("orders", "parcels")]
        assert [len(each) for each in found] == [1, 1]


async def test_a_gathered_result_that_is_not_stored_raises() -> None:
    app, elsewhere = Penstock("sqlite://"), Penstock("sqlite://")

    @elsewhere.task(queue="parts")
    def double(number: int) -> int:
        return 2 * number

    @app.task
    async def total(context: Context) -> str:
        try:
            await context.gather(double.call(4))
        except ResultGone as error:
            return str(error)
        return "found"

    async with Simulation.open() as simulation:
        await simulation.use(app)
        await simulation.broker.admin.create_queue("parts")
        job = await total.aenqueue()
        await simulation.run_until_idle()
        (child,) = (await simulation.broker.claim("parts", consumer="other")).messages
        await simulation.broker.complete(child)
        await simulation.run_until_idle()
        assert await job.aresult() == f"message {child.id} completed without a result"
