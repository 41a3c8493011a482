"""Enqueueing and completing in a caller's own transaction, with every kind of connection."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncmy
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock import Context, Penstock, chain
from penstock.app.task import AsyncTask
from penstock.errors import InvalidInput
from penstock.model.message import Dedup, State, Verb
from penstock.model.workflow import WorkflowState
from tests.app.scenes import until, working
from tests.local import local
from tests.servers.mariadb import MariaDB, place

pytestmark = pytest.mark.anyio
ORDER = "INSERT INTO orders VALUES ('tea')"


class RollBack(Exception):
    """Raised inside a transaction to undo it."""


@pytest.fixture
async def app(url: str) -> AsyncIterator[Penstock]:
    app = Penstock(url)
    assert local(await app.broker()).capabilities.engine == "mariadb"
    with pymysql.connect(**place(url)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (item VARCHAR(20) PRIMARY KEY)")
    yield app
    await app.aclose()


@pytest.fixture
def send(app: Penstock) -> AsyncTask[[str], None]:
    @app.task(name="send")
    async def send(to: str) -> None: ...

    return send


def asyncmy_with(*, autocommit: bool) -> Callable[[str], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        async with asyncmy.connect(**place(url), autocommit=autocommit) as connection:
            await connection.begin()
            async with connection.cursor() as cursor:
                await cursor.execute(ORDER)
            yield connection
            await connection.commit()

    return opened


def pymysql_with(*, autocommit: bool) -> Callable[[str], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        with pymysql.connect(**place(url), autocommit=autocommit) as connection:
            connection.begin()
            with connection.cursor() as cursor:
                cursor.execute(ORDER)
            yield connection
            connection.commit()

    return opened


@asynccontextmanager
async def with_session(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(dialect(url, "pymysql"))
    try:
        with Session(engine) as session, session.begin():
            yield session
            session.execute(sqlalchemy.text(ORDER))
    finally:
        engine.dispose()


@asynccontextmanager
async def with_engine(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(dialect(url, "pymysql"))
    try:
        with engine.begin() as connection:
            yield connection
            connection.execute(sqlalchemy.text(ORDER))
    finally:
        engine.dispose()


@asynccontextmanager
async def with_async_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(dialect(url, "asyncmy"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
            await session.execute(sqlalchemy.text(ORDER))
    finally:
        await engine.dispose()


def dialect(url: str, driver: str) -> str:
    return url.replace("mariadb://", f"mariadb+{driver}://")


CALLERS: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "asyncmy": asyncmy_with(autocommit=False),
    "asyncmy in autocommit": asyncmy_with(autocommit=True),
    "pymysql": pymysql_with(autocommit=False),
    "pymysql in autocommit": pymysql_with(autocommit=True),
    "session": with_session,
    "engine": with_engine,
    "async session": with_async_session,
}
caller = pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)


def orders(url: str) -> int:
    with pymysql.connect(**place(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orders")
        ((count,),) = cursor.fetchall()
        return int(count)


async def count_stored(app: Penstock) -> int:
    broker = await app.broker()
    return len(await broker.admin.find("default"))


@caller
async def test_it_is_there_when_the_caller_commits(
    app: Penstock, send: AsyncTask[[str], None], url: str, caller: Any
) -> None:
    async with caller(url) as connection:
        job = await send.options(connection=connection).aenqueue("ann's \\ ünï")
        assert await count_stored(app) == 0
    assert (orders(url), await count_stored(app)) == (1, 1)
    async with working(app):
        await job.aresult()


@caller
async def test_it_never_was_if_the_caller_rolls_back(
    app: Penstock, send: AsyncTask[[str], None], url: str, caller: Any
) -> None:
    async def send_all() -> None:
        async with caller(url) as connection:
            await send.options(connection=connection).aenqueue("ann")
            await send.options(connection=connection, dedup=Dedup("d")).aenqueue("bob")
            await send.options(connection=connection, key="k").aenqueue("cid")
            raise RollBack

    with pytest.raises(RollBack):
        await send_all()
    assert (orders(url), await count_stored(app)) == (0, 0)


@caller
async def test_names_keys_and_delays_work_inside_too(
    app: Penstock, send: AsyncTask[[str], None], url: str, caller: Any
) -> None:
    async with caller(url) as connection:
        on = {"connection": connection}
        await send.options(**on, name="one").aenqueue("ann")
        await send.options(**on, dedup=Dedup("d")).aenqueue("bob")
        again = await send.options(**on, dedup=Dedup("d")).aenqueue("bob")
        await send.options(**on, key="k").aenqueue("cid")
        await send.options(**on, delay=3_600).aenqueue("dan")
    assert again.duplicate
    broker = await app.broker()
    states = [record.state for record in await broker.admin.find("default")]
    assert sorted(states) == [State.READY, State.READY, State.SCHEDULED, State.SCHEDULED]


@caller
async def test_whoever_waits_finds_it_after_the_commit(
    app: Penstock, url: str, caller: Any
) -> None:
    ran: list[str] = []

    @app.task(name="note")
    async def note(word: str) -> None:
        ran.append(word)

    async with working(app):
        async with caller(url) as connection:
            await note.options(connection=connection).aenqueue("now")
        await until(lambda: ran == ["now"])


async def test_a_transaction_left_open_slows_nobody(
    app: Penstock, send: AsyncTask[[str], None], url: str
) -> None:
    broker = await app.broker()
    await broker.admin.create_queue("small", max_depth=100)
    async with CALLERS["asyncmy"](url) as connection, working(app):
        on = {"connection": connection}
        await send.options(**on).aenqueue("ann")
        await send.options(**on, key="k").aenqueue("bob")
        await send.options(**on, dedup=Dedup("d")).aenqueue("cid")
        await send.options(**on, queue="small").aenqueue("dan")
        jobs = [
            await send.aenqueue("eve"),
            await send.options(key="k").aenqueue("fay"),
            await send.options(dedup=Dedup("e")).aenqueue("gus"),
            await send.options(queue="small").aenqueue("hal"),
        ]
        for job in jobs[:3]:
            await job.aresult()


async def test_a_key_that_somebody_published_meanwhile_is_not_published_twice(
    app: Penstock, send: AsyncTask[[str], None], url: str
) -> None:
    """The caller's snapshot is older than what the others did."""
    async with CALLERS["pymysql"](url) as connection:
        await send.options(connection=connection, name="one").aenqueue("ann")
        first = await send.options(dedup=Dedup("d")).aenqueue("bob")
        second = await send.options(connection=connection, dedup=Dedup("d")).aenqueue("bob")
    assert (second.id, second.duplicate) == (first.id, True)


async def test_a_connection_to_another_database_is_refused(
    send: AsyncTask[[str], None], mariadb_server: MariaDB
) -> None:
    with mariadb_server.database() as elsewhere, pymysql.connect(**place(elsewhere)) as connection:
        with pytest.raises(InvalidInput, match="another database"):
            await send.options(connection=connection).aenqueue("ann")
        connection.ping(reconnect=False)


@caller
async def test_effect_and_completion_are_one(app: Penstock, url: str, caller: Any) -> None:
    tries: list[int] = []

    @app.task(name="buy", retry_on=(RollBack,))
    async def buy(context: Context) -> None:
        tries.append(context.attempt)
        async with caller(url) as connection:
            await context.acomplete_in(connection)
            if len(tries) == 1:
                raise RollBack

    async with working(app):
        job = await buy.options(max_attempts=3, callback="https://example.org/").aenqueue()
        await job.aresult()
    assert (tries, orders(url)) == ([1, 2], 1)
    assert len(await (await app.broker()).admin.callbacks(job.id)) == 1


async def test_a_rollback_that_nobody_mentions_is_a_nack(app: Penstock, url: str) -> None:
    @app.task(name="buy")
    async def buy(context: Context) -> None:
        async with asyncmy.connect(**place(url)) as connection:
            await connection.begin()
            await context.acomplete_in(connection)
            await connection.rollback()

    async with working(app) as worker:
        job = await buy.options(max_attempts=2).aenqueue()
        await until(lambda: worker.settled == 1)
    record = await (await app.broker()).admin.get(job.id)
    assert [(row.verb, row.reason) for row in record.timeline] == [(Verb.NACK, "ROLLED_BACK")]


@caller
async def test_a_workflow_opens_when_the_caller_commits(
    app: Penstock, send: AsyncTask[[str], None], url: str, caller: Any
) -> None:
    async with caller(url) as connection:
        flow = await chain(send.call("ann"), send.call("bob")).aenqueue(
            key="k", connection=connection
        )
        assert await count_stored(app) == 0
        assert (await local(await app.broker()).store.resume_held()).seen == 0
    assert (orders(url), await count_stored(app)) == (1, 2)
    assert (await flow.aview()).states == (State.READY, State.SCHEDULED)
    async with working(app), app.agents(await app.broker()):
        assert await flow.await_end(60) is WorkflowState.COMPLETED


@caller
async def test_a_workflow_never_was_if_the_caller_rolls_back(
    app: Penstock, send: AsyncTask[[str], None], url: str, caller: Any
) -> None:
    async def start_in_vain() -> None:
        async with caller(url) as connection:
            await chain(send.call("ann"), send.call("bob")).aenqueue(key="k", connection=connection)
            raise RollBack

    with pytest.raises(RollBack):
        await start_in_vain()
    assert (orders(url), await count_stored(app)) == (0, 0)
    store = local(await app.broker()).store
    kinds = ("workflow", "open_workflow", "workflow_key")
    assert [await store.documents(kind) for kind in kinds] == [[], [], []]
    again = await chain(send.call("ann"), send.call("bob")).aenqueue(key="k")
    assert not again.duplicate
