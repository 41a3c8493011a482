"""What newcomers try first works, or is refused with the word they need."""

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import penstock
from penstock import InvalidInput, Message, Penstock, State
from penstock.app.discovery import load
from penstock.stores.urls import redact_url
from tests.app.scenes import until, working

pytestmark = pytest.mark.anyio


@dataclass
class User:
    name: str


@pytest.fixture
def app(tmp_path: Path) -> Penstock:
    return Penstock(f"sqlite:///{tmp_path / 'queue.db'}")


def test_an_app_shows_its_store_and_its_tasks(tmp_path: Path) -> None:
    app = Penstock("postgresql://me:secret@db/work")
    app.task(User)
    assert repr(app) == f"<Penstock {redact_url(app.url)} with 1 tasks>"
    assert "secret" not in repr(app)


def test_the_errors_of_everyday_are_at_the_top_of_the_package() -> None:
    names = {"InvalidInput", "JobFailed", "JobCancelled", "PenstockError", "State"}
    assert names <= set(penstock.__all__)
    assert penstock.InvalidInput is InvalidInput


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("max_retries", "max_attempts"),
        ("countdown", "delay"),
        ("eta", "run_at"),
        ("expires", "ttl"),
        ("max_atempts", "max_attempts"),
    ],
)
def test_an_option_of_another_name_is_suggested(app: Penstock, given: str, meant: str) -> None:
    choices: dict[str, Any] = {given: 3}
    with pytest.raises(InvalidInput, match=f"no option named '{given}'; did you mean '{meant}'"):
        app.task(**choices)


@pytest.mark.parametrize("method", ["delay", "apply_async", "send"])
def test_a_method_of_another_queue_is_translated(app: Penstock, method: str) -> None:
    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(AttributeError, match=rf"no attribute '{method}'; use .*enqueue\("):
        getattr(send, method)
    assert not hasattr(send, "anything_else")


async def test_durations_may_be_timedeltas(app: Penstock) -> None:
    @app.task(timeout=timedelta(minutes=1))
    async def remind() -> None: ...

    before = datetime.now(UTC)
    later = remind.options(delay=timedelta(hours=1), ttl=timedelta(days=1))
    record = await (await later.aenqueue()).arecord()
    assert record.state is State.SCHEDULED
    assert record.due_at is not None
    assert record.due_at >= int((before + timedelta(hours=1)).timestamp() * 1_000_000)
    assert record.message.meta.timeout == 60
    await app.aclose()


def test_a_path_as_an_argument_is_refused_with_advice(app: Penstock) -> None:
    @app.task
    def convert(file: Path) -> None: ...

    with pytest.raises(InvalidInput, match=r"'file': PosixPath cannot be stored; pass str\(path\)"):
        convert.call(Path("photo.jpg"))


def test_an_argument_of_another_type_is_refused_with_both_names(app: Penstock) -> None:
    @app.task
    def greet(user: User) -> None: ...

    with pytest.raises(InvalidInput, match="'user': str is not User"):
        cast(Any, greet).call("ada")


@pytest.mark.parametrize("returned", ["five", None])
async def test_a_result_of_another_type_is_refused_at_the_worker(
    app: Penstock, returned: Any
) -> None:
    @app.task
    async def count() -> int:
        return cast(int, returned)

    @app.task
    def count_in_thread() -> int:
        return cast(int, returned)

    jobs = [await count.aenqueue(), await count_in_thread.aenqueue()]
    async with working(app) as worker:
        await until(lambda: worker.settled == 2)
    for job in jobs:
        record = await job.arecord()
        assert record.state is State.DEAD
        assert record.error is not None
        assert "Expected `int`" in record.error
    await app.aclose()


async def test_a_batch_waits_for_more_messages(app: Penstock) -> None:
    sizes: list[int] = []

    @app.subscriber("orders", batch=5, batch_wait=60)
    async def on_orders(messages: list[Message[int]]) -> None:
        sizes.append(len(messages))

    broker = await app.broker()
    async with working(app) as worker:
        for number in range(10):
            await app.apublish(penstock.Draft(queue="orders", body=b"%d" % number))
        await until(lambda: worker.completed == 10)
    assert sizes == [5, 5]
    assert broker is await app.broker()
    await app.aclose()


async def test_a_batch_that_does_not_fill_runs_after_its_wait(app: Penstock) -> None:
    sizes: list[int] = []

    @app.subscriber("orders", batch=5, batch_wait=0.05)
    async def on_orders(messages: list[Message[int]]) -> None:
        sizes.append(len(messages))

    async with working(app) as worker:
        for number in range(2):
            await app.apublish(penstock.Draft(queue="orders", body=b"%d" % number))
        await until(lambda: worker.completed == 2)
    assert sum(sizes) == 2
    await app.aclose()


@pytest.mark.parametrize("wait", [-1, 61])
def test_a_wait_beyond_reason_is_refused(app: Penstock, wait: float) -> None:
    def on_orders(messages: list[Message[int]]) -> None: ...

    with pytest.raises(InvalidInput, match="batch_wait needs batch, and is at most 60 s"):
        app.subscriber("orders", batch=5, batch_wait=wait)(on_orders)


SCRIPT = """
import asyncio
from penstock import Penstock

app = Penstock()


async def main() -> None: ...


def start() -> None:
    work = main()
    try:
        asyncio.run(work)
    finally:
        work.close()


start()
"""


async def test_an_import_that_fails_names_the_users_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pasted.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput, match=r"pasted\.py:14; put code that must run only as"):
        load("pasted:app")


LAZY = """
import sys
from penstock import Penstock
app = Penstock("sqlite:///lazy.db")
@app.task
def double(number: int) -> int:
    return 2 * number
heavy = {"structlog", "click", "aiohttp", "fastapi", "uvicorn", "rich", "pydantic", "asyncpg",
         "redis", "opentelemetry", "prometheus_client", "jwt", "sqlite3", "penstock.worker.worker",
         "penstock.agents", "penstock.http", "penstock.client.client"}
print(sorted(heavy & set(sys.modules)))
"""


def test_an_app_that_only_declares_loads_little(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAZY], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
