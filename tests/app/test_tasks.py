"""Functions that can be enqueued: by decorator, with options, one or many."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from penstock import Context, Dedup, Penstock
from penstock.app.task import Choices, TaskOptions
from penstock.errors import InvalidInput, NameTaken, QueueFull
from penstock.model.message import State
from tests.app.scenes import record, working

pytestmark = pytest.mark.anyio


def test_the_url_is_given_or_the_environments_or_a_file_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    assert Penstock().url == "sqlite:///penstock.db"
    monkeypatch.setenv("PENSTOCK_URL", "sqlite:///there.db")
    assert Penstock().url == "sqlite:///there.db"
    assert Penstock("sqlite://").url == "sqlite://"


async def test_a_task_runs_in_a_worker_and_its_result_comes_back(app: Penstock) -> None:
    @app.task(queue="mail", max_attempts=3)
    async def greet(name: str, times: int = 1) -> str:
        return "hi " * times + name

    @app.task
    def double(number: int) -> int:
        return 2 * number

    async with working(app):
        greeting = await greet.aenqueue("Ada", times=2)
        doubled = await double.aenqueue(21)
        assert await greeting.aresult(30) == "hi hi Ada"
        assert await doubled.aresult(30) == 42


async def test_a_task_enqueues_another(filed: Penstock) -> None:
    @filed.task
    async def double(number: int) -> int:
        return 2 * number

    @filed.task
    async def on_loop() -> int:
        return (await double.aenqueue(1)).id

    @filed.task
    def in_thread() -> int:
        return double.enqueue(2).id

    async with working(filed):
        for task, result in ((on_loop, 2), (in_thread, 4)):
            id = await (await task.aenqueue()).aresult(30)
            assert await double.job(id).aresult(30) == result
    await asyncio.to_thread(filed.close)


async def test_calling_a_task_runs_it_in_place(app: Penstock) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task(queue="other")
    async def add(a: int, *, b: int = 2) -> int:
        return a + b

    assert double(4) == 8
    assert await add(1, b=4) == 5
    assert [queue.name for queue in await (await app.broker()).admin.queues()] == [
        "_callback",
        "_dead_letter",
        "default",
    ]


async def test_a_task_called_in_place_has_a_context_of_no_message(app: Penstock) -> None:
    @app.task(name="report")
    def report(context: Context, page: int) -> tuple[str, int, int, str, bool]:
        context.progress(page, total=10)
        context.heartbeat()
        return context.delivery.type, context.id, context.attempt, context.queue, context.cancelled

    assert report(3) == ("report", 0, 1, "default", False)


async def test_the_context_of_a_run_knows_its_message(app: Penstock) -> None:
    @app.task(queue="mail")
    async def tell(context: Context) -> dict[str, Any]:
        return {
            "id": context.id,
            "attempt": context.attempt,
            "fence": context.fence,
            "queue": context.queue,
            "headers": context.headers,
            "correlation": context.correlation_id,
        }

    async with working(app):
        job = await tell.options(headers={"a": "b"}, correlation_id="c7").aenqueue()
        told = await job.aresult(30)
    assert told == {
        "id": job.id,
        "attempt": 1,
        "fence": (await record(app, job.id)).timeline[-1].fence,
        "queue": "mail",
        "headers": {"a": "b"},
        "correlation": "c7",
    }


async def test_options_are_for_one_enqueue_and_leave_the_task_as_it_was(app: Penstock) -> None:
    @app.task(queue="mail", priority=3)
    async def send(to: str) -> None: ...

    due = datetime.now(UTC) + timedelta(hours=1)
    plain = await send.aenqueue("a")
    other = await send.options(
        queue="slow", priority=7, run_at=due, name="letter", key="customer-7", labels={"x": "y"}
    ).aenqueue("a")
    first, second = await record(app, plain.id), await record(app, other.id)
    assert (first.message.priority, first.state) == (3, State.READY)
    assert (second.message.priority, second.state) == (7, State.SCHEDULED)
    assert second.run_at == int(due.timestamp() * 1_000_000)
    assert second.message.meta.ordering_key == "customer-7"
    assert (await (await app.broker()).admin.get("slow/letter")).message.id == other.id


async def test_every_option_has_a_keyword_that_type_checkers_know() -> None:
    assert set(Choices.__annotations__) == set(TaskOptions.__struct_fields__)


async def test_a_delayed_job_waits(app: Penstock) -> None:
    @app.task
    async def send() -> None: ...

    job = await send.options(delay=3600).aenqueue()
    assert await job.astatus() is State.SCHEDULED


async def test_a_unique_job_stands_in_for_its_twin(app: Penstock) -> None:
    @app.task
    async def welcome(customer: int) -> None: ...

    once = welcome.options(unique="welcome:7")
    first, second = await once.aenqueue(7), await once.aenqueue(7)
    assert (second.id, first.duplicate, second.duplicate) == (first.id, False, True)
    other = await once.aenqueue(8)
    assert (other.id, other.duplicate) == (first.id, True)


async def test_a_dedup_window_is_an_option(app: Penstock) -> None:
    @app.task
    async def welcome(customer: int) -> None: ...

    once = welcome.options(dedup=Dedup("seven", window=60))
    assert (await once.aenqueue(7)).id == (await once.aenqueue(7)).id
    with pytest.raises(InvalidInput, match="unique or dedup"):
        await once.options(unique="x").aenqueue(7)


async def test_a_name_is_taken_once(app: Penstock) -> None:
    @app.task
    async def send() -> None: ...

    await send.options(name="letter").aenqueue()
    with pytest.raises(NameTaken, match="letter"):
        await send.options(name="letter").aenqueue()


async def test_many_are_enqueued_in_one_step_in_order(app: Penstock) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    jobs = await app.aenqueue_many(double.call(number) for number in range(5))
    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    async with working(app):
        assert [await job.aresult(30) for job in jobs] == [0, 2, 4, 6, 8]


async def test_no_calls_are_no_jobs(app: Penstock) -> None:
    assert await app.aenqueue_many([]) == []


async def test_of_many_each_one_answers_for_itself(app: Penstock) -> None:
    app.queue("small", max_depth=2)

    @app.task(queue="small")
    async def send(number: int) -> None: ...

    jobs = await app.aenqueue_many([send.call(number) for number in range(3)])
    assert [job.refused for job in jobs[:2]] == [None, None]
    assert isinstance(jobs[2].refused, QueueFull)
    with pytest.raises(QueueFull):
        await jobs[2].aresult()
    with pytest.raises(QueueFull):
        await jobs[2].acancel()


async def test_atomic_refuses_all_if_one_is_refused(app: Penstock) -> None:
    app.queue("small", max_depth=2)

    @app.task(queue="small")
    async def send(number: int) -> None: ...

    with pytest.raises(QueueFull):
        await app.aenqueue_many([send.call(number) for number in range(3)], atomic=True)
    assert await (await app.broker()).admin.find("small") == []


async def test_a_single_refused_enqueue_raises(app: Penstock) -> None:
    app.queue("small", max_depth=1)

    @app.task(queue="small")
    async def send() -> None: ...

    await send.aenqueue()
    with pytest.raises(QueueFull, match="small"):
        await send.aenqueue()


async def test_a_declared_queue_is_made_with_its_settings(app: Penstock) -> None:
    app.queue("orders", preset="relay", max_depth=5)

    @app.task(queue="orders")
    async def send() -> None: ...

    await send.aenqueue()
    queue = await (await app.broker()).admin.queue("orders")
    assert (queue.settings.max_attempts, queue.settings.max_depth) == (3, 5)


async def test_a_job_can_be_found_again_by_its_id(app: Penstock) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    id = (await double.aenqueue(4)).id
    async with working(app):
        assert await double.job(id).aresult(30) == 8


def test_two_tasks_cannot_have_one_name() -> None:
    app = Penstock("sqlite://")
    app.task(name="send")(lambda: None)
    with pytest.raises(InvalidInput, match="two tasks are named 'send'"):
        app.task(name="send")(lambda: None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"quue": "mail"}, "no option named 'quue'; did you mean 'queue'"),
        ({"policy": "ack_always"}, "no policy 'ack_always'"),
        ({"executor": "greenlet"}, "no executor named 'greenlet'"),
        ({"executor": "async"}, "not a coroutine function"),
        ({"executor": "process"}, "top level of a module"),
        ({"cron": "61 * * * *"}, "cron '61 * * * *'"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "no timezone"),
        ({"cron": "* * * * *", "missed": "some"}, "missed is 'some'"),
    ],
)
def test_a_wrong_option_is_refused_when_the_task_is_made(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidInput, match=text.replace("*", r"\*")):
        Penstock("sqlite://").task(**options)(lambda: None)


def test_only_a_function_becomes_a_task() -> None:
    app = Penstock("sqlite://")
    task = app.task(name="send")(lambda: None)
    for other in (task, partial(print, "hi")):
        with pytest.raises(InvalidInput, match="only functions can be tasks"):
            app.task(other)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"preset": "nope"}, "no preset named 'nope'"),
        ({"leese": 3}, "unknown field `leese`"),
        ({"lease": 0}, "lease is 0"),
    ],
)
def test_a_wrong_setting_is_refused_when_the_queue_is_declared(
    settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidInput, match=text):
        Penstock("sqlite://").queue("mail", **settings)


def test_a_coroutine_function_does_not_run_in_a_thread() -> None:
    async def send() -> None: ...

    with pytest.raises(InvalidInput, match="is a coroutine function"):
        Penstock("sqlite://").task(executor="thread")(send)


async def test_an_option_of_the_wrong_kind_is_refused_at_enqueue(app: Penstock) -> None:
    @app.task
    async def send() -> None: ...

    misspelt: dict[str, Any] = {"delya": 3}
    with pytest.raises(InvalidInput, match="no option named 'delya'; did you mean 'delay'"):
        send.options(**misspelt)
    with pytest.raises(InvalidInput, match="has no time zone"):
        await send.options(run_at=datetime(2030, 1, 1)).aenqueue()
    text: dict[str, Any] = {"run_at": "2030-01-01"}
    with pytest.raises(InvalidInput, match="not a datetime"):
        await send.options(**text).aenqueue()
    with pytest.raises(InvalidInput, match="delay is -1"):
        await send.options(delay=-1).aenqueue()


def test_a_context_is_the_first_parameter() -> None:
    def send(to: str, context: Context) -> None: ...

    with pytest.raises(InvalidInput, match="first parameter"):
        Penstock("sqlite://").task(send)


def test_the_version_of_a_task_is_part_of_the_type_of_its_messages() -> None:
    app = Penstock("sqlite://")

    @app.task(name="refund")
    def refund_1() -> None: ...

    @app.task(name="refund", version=2)
    def refund() -> None: ...

    assert refund_1.call().draft.type == "refund"
    assert refund.call().draft.type == "refund@2"
    with pytest.raises(InvalidInput, match="two tasks are named 'refund@2'"):
        app.task(name="refund", version=2)(refund_1.function)


@pytest.mark.parametrize("version", [0, -1, True, "2", 1.5])
def test_a_version_that_is_no_whole_number_is_refused(version: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a whole number from 1 on"):
        Penstock("sqlite://").task(name="refund", version=version)(print)
