"""Steps in the caller's own transaction: effect and record are one, on every store that can."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from penstock import Context, Penstock
from penstock.errors import InvalidInput, JobFailed
from penstock.worker import steps
from penstock.worker.retry_strategies import exponential
from tests.app.scenes import working
from tests.servers.mariadb import MariaDB, place
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/queue.db"
        return
    server: Postgres | MariaDB = request.getfixturevalue(f"{request.param}_server")
    with server.database() as url:
        yield url


@pytest.fixture
async def app(url: str) -> AsyncIterator[Penstock]:
    app = Penstock(url)
    await app.broker()
    with connect(url) as connection:
        execute(connection, "CREATE TABLE charge (number INTEGER)")
        connection.commit()
    yield app
    await app.aclose()


@contextmanager
def connect(url: str) -> Iterator[Any]:
    """Opens a connection of the caller's own, with an open transaction."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            yield connection
    elif url.startswith("postgres"):
        with psycopg.connect(url) as connection:
            yield connection
    else:
        with closing(pymysql.connect(**place(url))) as connection:
            connection.begin()
            yield connection


def execute(connection: Any, text: str) -> list[Any]:
    with closing(connection.cursor()) as cursor:
        cursor.execute(text)
        return list(cursor.fetchall()) if cursor.description else []


def count_charges(url: str) -> int:
    with connect(url) as connection:
        ((count,),) = execute(connection, "SELECT count(*) FROM charge")
        return int(count)


async def test_a_step_that_committed_is_not_run_again(app: Penstock, url: str) -> None:
    runs: list[int] = []

    @app.task(max_attempts=3, retry=exponential(0.01))
    def pay(context: Context) -> int:
        runs.append(1)
        with connect(url) as connection:

            def charge() -> int:
                execute(connection, "INSERT INTO charge VALUES (7)")
                return 7

            paid = context.sync.transaction(connection).step("charge", charge)
            connection.commit()
        if len(runs) == 1:
            raise ValueError("after the commit")
        return paid

    async with working(app):
        job = await pay.aenqueue()
        assert await job.aresult(30) == 7
    assert (len(runs), count_charges(url)) == (2, 1)
    steps = (await (await app.broker()).waits.steps(job.id)).steps
    assert [(step.name, step.body) for step in steps] == [("charge", b"7")]


async def test_a_step_that_was_rolled_back_left_neither_effect_nor_record(
    app: Penstock, url: str
) -> None:
    runs: list[int] = []

    @app.task(max_attempts=3, retry=exponential(0.01))
    def pay(context: Context) -> int:
        runs.append(1)
        with connect(url) as connection:
            paid = context.sync.transaction(connection).step("charge", insert, connection)
            if len(runs) == 1:
                connection.rollback()
                raise ValueError("before the commit")
            connection.commit()
        return paid

    async with working(app):
        job = await pay.aenqueue()
        assert await job.aresult(30) == 8
    assert (len(runs), count_charges(url)) == (2, 1)


def insert(connection: Any) -> int:
    execute(connection, "INSERT INTO charge VALUES (8)")
    return 8


async def test_steps_in_and_out_of_a_transaction_keep_their_records(
    app: Penstock, url: str
) -> None:
    noted: list[str] = []

    @app.task(max_attempts=3, retry=exponential(0.01))
    def pay(context: Context) -> list[int]:
        first = context.sync.step("plain", note, noted, "plain")
        with connect(url) as connection:
            paid = context.sync.transaction(connection).step("charge", insert, connection)
            connection.commit()
        context.sync.sleep(0.01)
        return [first, paid]

    async with working(app):
        assert await (await pay.aenqueue()).aresult(30) == [1, 8]
    assert (noted, count_charges(url)) == (["plain"], 1)


def note(noted: list[str], text: str) -> int:
    noted.append(text)
    return len(noted)


async def test_redis_refuses_steps_in_a_transaction(redis_server: Redis) -> None:
    with redis_server.database() as url:
        app = Penstock(url)

        @app.task(max_attempts=1)
        def pay(context: Context) -> int:
            return context.sync.transaction(object()).step("charge", int)

        async with working(app):
            job = await pay.aenqueue()
            with pytest.raises(JobFailed, match="transaction"):
                await job.aresult(30)
        await app.aclose()


async def test_an_async_connection_works_as_well(postgres_server: Postgres) -> None:
    with postgres_server.database() as url:
        app = Penstock(url)
        await app.broker()
        with connect(url) as connection:
            execute(connection, "CREATE TABLE charge (number INTEGER)")
            connection.commit()

        @app.task
        async def pay(context: Context) -> int:
            async with await psycopg.AsyncConnection.connect(url) as own:

                async def charge() -> int:
                    await own.execute("INSERT INTO charge VALUES (9)")
                    return 9

                paid: int = await context.transaction(own).step("charge", charge)
            await context.sleep(0.01)
            return paid

        async with working(app):
            assert await (await pay.aenqueue()).aresult(30) == 9
        assert count_charges(url) == 1
        await app.aclose()


async def test_a_connection_without_a_transaction_is_refused(tmp_path: Path) -> None:
    app = Penstock(f"sqlite:///{tmp_path}/queue.db")

    @app.task(max_attempts=1)
    def pay(context: Context) -> str:
        own = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
        with closing(own), pytest.raises(InvalidInput, match="begin a transaction first"):
            context.sync.transaction(own).step("charge", int)
        return "refused"

    async with working(app):
        assert await (await pay.aenqueue()).aresult(30) == "refused"
    await app.aclose()


async def test_committed_steps_count_towards_the_size_of_a_message(
    app: Penstock, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "MAX_MESSAGE_BYTES", 1_500)

    @app.task(max_attempts=3, retry=exponential(0.01))
    def hoard(context: Context) -> None:
        for _ in range(2):
            with connect(url) as connection:
                context.sync.transaction(connection).step("make", lambda: "x" * 1_000)
                connection.commit()

    async with working(app):
        job = await hoard.aenqueue()
        with pytest.raises(JobFailed, match="exceed 64 MB"):
            await job.aresult(60)
    assert len((await (await app.broker()).waits.steps(job.id)).steps) == 1
