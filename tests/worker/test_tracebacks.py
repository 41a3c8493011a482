"""A failure explains itself: where it happened is stored with the run, and logged."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from penstock import AckPolicy, Context, Draft, Message, Penstock, Reject, Retry, constant
from penstock.errors import InvalidInput, JobCancelled, JobFailed
from penstock.model.settings import SHELL_TYPE
from penstock.worker.executors.shell import ShellHandler
from penstock.worker.process import WorkerProcess
from penstock.worker.tracebacks import MAX_ERROR_TEXT, format_traceback
from penstock.worker.worker import Worker
from tests.app.scenes import record, until, until_true, working
from tests.worker import shop

pytestmark = pytest.mark.anyio


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Penstock]:
    app = shop.app
    app.use(f"sqlite:///{tmp_path}/queue.db")
    yield app
    await app.aclose()


def find_missing(found: dict[str, str]) -> str:
    return found["missing"]


def check_frames(traceback: str | None) -> None:
    """The user's own frames and no others, and no value that stood there."""
    assert traceback is not None
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert 'return found["missing"]' in traceback
    assert f'File "{__file__}", line ' in traceback
    assert ", in find_missing" in traceback
    assert traceback.endswith("KeyError: 'missing'")
    assert "penstock/worker" not in traceback
    assert "s3cret" not in traceback


async def test_the_traceback_of_a_coroutine_is_kept_with_its_run(app: Penstock) -> None:
    @app.task(max_attempts=1)
    async def look(token: str) -> str:
        return find_missing({"token": token})

    job = await look.aenqueue("s3cret")
    async with working(app):
        with pytest.raises(JobFailed) as failed:
            await job.aresult(60)
    found = await record(app, job.id)
    check_frames(found.timeline[-1].traceback)
    assert failed.value.__notes__ == [found.traceback]


async def test_the_traceback_of_a_thread_is_kept_with_its_run(app: Penstock) -> None:
    @app.task(max_attempts=1)
    def look(token: str) -> str:
        return find_missing({"token": token})

    job = await look.aenqueue("s3cret")
    async with working(app) as worker:
        await until(lambda: worker.settled == 1)
    check_frames((await record(app, job.id)).traceback)


async def test_the_traceback_of_a_process_is_kept_with_its_run(processes: Penstock) -> None:
    job = await shop.fail.options(max_attempts=1).aenqueue("error")
    async with working(processes, concurrency=1) as worker:
        await until(lambda: worker.settled == 1)
    found = (await record(processes, job.id)).traceback
    assert found is not None
    assert "shop.py" in found
    assert ", in fail" in found
    assert found.endswith("ValueError: boom")
    assert "penstock/worker" not in found


async def test_every_run_has_its_own_traceback(app: Penstock) -> None:
    @app.task(max_attempts=2, retry=None)
    async def look(context: Context) -> None:
        if context.attempt == 1:
            raise Retry(delay=0)
        raise ValueError("the second time")

    job = await look.aenqueue()
    async with working(app) as worker:
        await until(lambda: worker.settled == 2)
    first, second = [row.traceback for row in (await record(app, job.id)).timeline]
    assert first is not None
    assert second is not None
    assert first.endswith("Retry: retry")
    assert second.endswith("ValueError: the second time")


async def test_every_message_of_a_batch_has_the_traceback(app: Penstock) -> None:
    await (await app.broker()).admin.create_queue("orders", max_attempts=1)
    sent = [await app.apublish(Draft(queue="orders", body=b"{}")) for _ in range(3)]

    @app.subscriber("orders", batch=3)
    async def take(messages: Sequence[Message[dict[str, int]]]) -> None:
        find_missing({})

    async with working(app) as worker:
        await until(lambda: worker.settled == 3)
    for each in sent:
        check_frames((await record(app, each.id)).traceback)


async def test_causes_come_first_and_groups_are_opened() -> None:
    def fail() -> None:
        try:
            find_missing({})
        except KeyError as error:
            raise ExceptionGroup("two", [ValueError("one"), OSError("other")]) from error

    with pytest.raises(ExceptionGroup) as raised:
        fail()
    text = format_traceback(raised.value)
    assert text is not None
    assert text.index("KeyError: 'missing'") < text.index("direct cause") < text.index("two (2 sub")
    assert "  | ValueError: one\n" in text
    assert text.endswith("  | OSError: other")


async def test_a_huge_error_does_not_push_its_frames_out() -> None:
    with pytest.raises(ValueError, match="xxx") as raised:
        raise ValueError("x" * 200_000)
    text = format_traceback(raised.value)
    assert text is not None
    assert len(text) < MAX_ERROR_TEXT + 500
    assert 'raise ValueError("x" * 200_000)' in text


async def test_what_the_user_has_no_part_in_has_no_traceback(tmp_path: Path) -> None:
    app = Penstock(f"sqlite:///{tmp_path}/queue.db")
    broker = await app.broker()
    await broker.admin.create_queue("shell", preset_name="queuectl", max_attempts=1)
    body = b'{"command": "exit 3"}'
    id = (await broker.publish(Draft(queue="shell", type=SHELL_TYPE, body=body))).id
    async with Worker(broker, [ShellHandler("shell", tmp_path / "out")]) as worker:
        await until(lambda: worker.settled == 1)
    found = await record(app, id)
    assert (found.error, found.traceback) == ("CommandFailed: exit 3", None)
    await app.aclose()


async def test_a_refusal_of_ours_names_the_line_that_asked_for_it(app: Penstock) -> None:
    @app.task(max_attempts=1)
    async def look(context: Context) -> None:
        context.progress(1, 0)

    job = await look.aenqueue()
    async with working(app) as worker:
        await until(lambda: worker.settled == 1)
    text = (await record(app, job.id)).traceback
    assert text is not None
    assert "context.progress(1, 0)" in text
    assert InvalidInput.__name__ in text


class TestTimeouts:
    async def test_a_coroutine_is_shown_where_it_waited(self, app: Penstock) -> None:
        @app.task(timeout=0.05, max_attempts=1)
        async def slow() -> None:
            await asyncio.sleep(100)

        job = await slow.aenqueue()
        async with working(app) as worker:
            await until(lambda: worker.settled == 1)
        text = (await record(app, job.id)).traceback
        assert text is not None
        assert "await asyncio.sleep(100)" in text
        assert text.endswith("TimedOut: run exceeded its timeout")

    async def test_a_coroutine_that_does_not_end_is_shown_where_it_waits(
        self, app: Penstock
    ) -> None:
        go_on = asyncio.Event()

        async def swallow() -> None:
            while not go_on.is_set():
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    continue

        @app.task(timeout=0.05, max_attempts=1)
        async def stubborn() -> None:
            await swallow()

        job = await stubborn.aenqueue()
        async with working(app, grace=0.1) as worker:
            await until(lambda: worker.settled == 1)
            go_on.set()
        text = (await record(app, job.id)).traceback
        assert text is not None
        assert text.startswith("Stack when the timeout expired")
        assert ", in stubborn" in text
        assert "await go_on.wait()" in text

    async def test_a_thread_is_shown_where_it_is(self, app: Penstock) -> None:
        go_on = threading.Event()

        @app.task(timeout=0.05, max_attempts=1)
        def stuck() -> None:
            go_on.wait(60)

        job = await stuck.aenqueue()
        async with working(app) as worker:
            await until(lambda: worker.settled == 1)
            go_on.set()
        text = (await record(app, job.id)).traceback
        assert text is not None
        assert "go_on.wait(60)" in text
        assert "penstock/worker" not in text

    async def test_a_process_is_shown_where_it_was(self, processes: Penstock) -> None:
        async with working(processes, concurrency=1):
            # Its process is there by then, and has only the answer to give.
            assert await (await shop.double.aenqueue(2)).aresult(60) == 4
            job = await shop.nap.options(timeout=1.0).aenqueue(100)

            async def is_shown() -> bool:
                return "time.sleep(" in ((await record(processes, job.id)).traceback or "")

            await until_true(is_shown)
            await job.acancel()
            assert await (await shop.double.aenqueue(2)).aresult(60) == 4


def ends_of(logs: list[EventDict]) -> list[tuple[str, str, str | None]]:
    """Event, level and state of what was logged of runs."""
    events = ("run_completed", "run_failed", "run_cancelled", "retry_requested")
    found = [entry for entry in logs if entry["event"] in events]
    return [(entry["event"], entry["log_level"], entry.get("state")) for entry in found]


async def test_a_retried_failure_is_a_warning_and_the_last_one_an_error(app: Penstock) -> None:
    @app.task(max_attempts=2, retry=constant(0))
    async def look() -> None:
        find_missing({})

    with capture_logs() as logs:
        async with working(app) as worker:
            job = await look.aenqueue()
            await until(lambda: worker.settled == 2)
    assert ends_of(logs) == [("run_failed", "warning", "ready"), ("run_failed", "error", "dead")]
    last = [entry for entry in logs if entry["event"] == "run_failed"][-1]
    assert (last["id"], last["attempt"], last["error"]) == (job.id, 2, "KeyError: 'missing'")
    assert last["handler"].endswith("look")
    check_frames(last["exception"])


async def test_a_cancel_and_a_retry_are_no_failures_in_the_log(app: Penstock) -> None:
    @app.task
    async def wait(context: Context) -> None:
        while True:
            context.raise_if_cancelled()
            await asyncio.sleep(0.01)

    @app.task
    async def later() -> None:
        raise Retry(delay=60, reason="not yet")

    with capture_logs() as logs:
        async with working(app, lease=0.3) as worker:
            job = await wait.aenqueue()
            await until(lambda: job.id in worker.held)
            await job.acancel()
            with pytest.raises(JobCancelled):
                await job.aresult(60)
            await later.aenqueue()
            await until(lambda: worker.settled == 2)
    assert ends_of(logs) == [("run_cancelled", "info", None), ("retry_requested", "info", None)]
    assert not any("exception" in entry for entry in logs)


async def test_a_retry_in_a_process_is_no_failure_in_the_log(processes: Penstock) -> None:
    with capture_logs() as logs:
        async with working(processes, concurrency=1) as worker:
            await shop.fail.options(max_attempts=3).aenqueue("retry")
            await until(lambda: worker.settled == 1)
    assert ends_of(logs) == [("retry_requested", "info", None)]


async def test_a_failure_that_is_acknowledged_all_the_same_is_a_warning(app: Penstock) -> None:
    @app.task(policy=AckPolicy.ACK)
    async def look() -> None:
        find_missing({})

    with capture_logs() as logs:
        async with working(app) as worker:
            await look.aenqueue()
            await until(lambda: worker.completed == 1)
    assert ends_of(logs) == [("run_failed", "warning", "completed")]


async def test_a_long_error_is_cut_in_the_log(app: Penstock) -> None:
    @app.task(max_attempts=1)
    async def look() -> None:
        raise Reject("x" * 200_000)

    with capture_logs() as logs:
        async with working(app) as worker:
            await look.aenqueue()
            await until(lambda: worker.settled == 1)
    (entry,) = [each for each in logs if each["event"] == "run_failed"]
    assert len(entry["error"]) <= 1_000
    assert len(entry["exception"]) < 2_000


async def test_a_process_of_its_own_logs_what_it_completed(app: Penstock) -> None:
    @app.task
    async def work() -> None: ...

    with capture_logs() as logs:
        async with working(app) as worker:
            WorkerProcess(worker, app.agents(await app.broker()))
            job = await work.aenqueue()
            await until(lambda: worker.completed == 1)
            for _ in range(300):
                await work.aenqueue()
            await until(lambda: worker.completed == 301)
    completed = [entry for entry in logs if entry["event"] == "run_completed"]
    assert (completed[0]["id"], completed[0]["log_level"]) == (job.id, "info")
    assert completed[0]["handler"].endswith("work")
    assert completed[0]["seconds"] >= 0
    left_out = [entry["suppressed"] for entry in logs if entry["event"] == "runs_completed"]
    assert len(completed) + sum(left_out) == 301


async def test_a_worker_inside_of_another_program_does_not_log_completions(app: Penstock) -> None:
    @app.task
    async def work() -> None: ...

    with capture_logs() as logs:
        async with working(app) as worker:
            await work.aenqueue()
            await until(lambda: worker.completed == 1)
    assert ends_of(logs) == []
