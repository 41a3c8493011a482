"""Enqueueing and completing in a caller's own transaction, with every kind of connection."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock import Context, Penstock, chain
from penstock.app.task import AsyncTask
from penstock.errors import InvalidInput
from penstock.model.message import Dedup, State, Verb
from penstock.model.workflow import WorkflowState
from tests.app.scenes import until, working
from tests.local import local
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.anyio


class RollBack(Exception):
    """Raised inside a transaction to undo it."""


@pytest.fixture
def url(postgres_server: Postgres) -> Iterator[str]:
    with postgres_server.database() as url:
        yield url


@pytest.fixture
async def app(url: str) -> AsyncIterator[Penstock]:
    app = Penstock(url)
    broker = await app.broker()
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE orders (item text PRIMARY KEY)")
    await connection.close()
    assert local(broker).capabilities.engine == "postgres"
    yield app
    await app.aclose()


@pytest.fixture
def send(app: Penstock) -> AsyncTask[[str], None]:
    @app.task(name="send")
    async def send(to: str) -> None: ...

    return send


@asynccontextmanager
async def with_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("INSERT INTO orders VALUES ('tea')")
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def with_psycopg(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO orders VALUES ('tea')")
        yield connection


@asynccontextmanager
async def with_psycopg_in_autocommit(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction():
        connection.execute("INSERT INTO orders VALUES ('tea')")
        yield connection


@asynccontextmanager
async def with_psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("INSERT INTO orders VALUES ('tea')")
        yield connection


@asynccontextmanager
async def with_session(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(dialect(url, "psycopg"))
    try:
        with Session(engine) as session, session.begin():
            yield session
            session.execute(sqlalchemy.text("INSERT INTO orders VALUES ('tea')"))
    finally:
        engine.dispose()


@asynccontextmanager
async def with_engine(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(dialect(url, "psycopg"))
    try:
        with engine.begin() as connection:
            yield connection
            connection.execute(sqlalchemy.text("INSERT INTO orders VALUES ('tea')"))
    finally:
        engine.dispose()


def async_session(driver: str) -> Callable[[str], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        engine = create_async_engine(dialect(url, driver))
        try:
            async with AsyncSession(engine) as session, session.begin():
                yield session
                await session.execute(sqlalchemy.text("INSERT INTO orders VALUES ('tea')"))
        finally:
            await engine.dispose()

    return opened


@asynccontextmanager
async def with_django(url: str) -> AsyncIterator[Any]:
    configure(url)
    connection = connections["default"]
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO orders VALUES ('tea')")
            yield connection
    finally:
        connection.close()


def configure(url: str) -> None:
    """Django has one set of databases a process: it is pointed at this test's."""
    parts = sqlalchemy.make_url(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.database,
        "USER": parts.username,
        "HOST": parts.host,
        "PORT": str(parts.port),
    }
    if not settings.configured:
        settings.configure(DATABASES={"default": database})
        django.setup()
    connections["default"].settings_dict.update(database)


def dialect(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


CALLERS: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "asyncpg": with_asyncpg,
    "psycopg": with_psycopg,
    "psycopg in autocommit": with_psycopg_in_autocommit,
    "psycopg async": with_psycopg_async,
    "session": with_session,
    "engine": with_engine,
    "async session, asyncpg": async_session("asyncpg"),
    "async session, psycopg": async_session("psycopg"),
    "django": with_django,
}
caller = pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)


async def orders(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        count: int = await connection.fetchval("SELECT count(*) FROM orders")
        return count
    finally:
        await connection.close()


async def count_stored(app: Penstock) -> int:
    broker = await app.broker()
    return len(await broker.admin.find("default"))


@pytest.fixture(autouse=True)
def allow_django(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses to be called where a loop runs; a test may."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@caller
async def test_it_is_there_when_the_caller_commits(
    app: Penstock, send: AsyncTask[[str], None], url: str, caller: Any
) -> None:
    async with caller(url) as connection:
        job = await send.options(connection=connection).aenqueue("ann")
        assert await count_stored(app) == 0
    assert (await orders(url), await count_stored(app)) == (1, 1)
    async with working(app):
        await job.aresult()


@caller
async def test_it_never_was_if_the_caller_rolls_back(
    app: Penstock, send: AsyncTask[[str], None], url: str, caller: Any
) -> None:
    async def publish_in_vain() -> None:
        async with caller(url) as connection:
            await send.options(connection=connection).aenqueue("ann")
            await send.options(connection=connection, dedup=Dedup("d")).aenqueue("bob")
            await send.options(connection=connection, key="k").aenqueue("cid")
            raise RollBack

    with pytest.raises(RollBack):
        await publish_in_vain()
    assert (await orders(url), await count_stored(app)) == (0, 0)


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
async def test_whoever_waits_is_woken_by_the_commit(
    app: Penstock, send: AsyncTask[[str], None], url: str, caller: Any
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
    async with with_asyncpg(url) as connection, working(app):
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


async def test_a_connection_to_another_database_is_refused(
    send: AsyncTask[[str], None], postgres_server: Postgres
) -> None:
    with postgres_server.database() as elsewhere, psycopg.connect(elsewhere) as connection:
        with pytest.raises(InvalidInput, match="another database"):
            await send.options(connection=connection).aenqueue("ann")
        connection.execute("SELECT 1")


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
    assert (tries, await orders(url)) == ([1, 2], 1)
    assert len(await (await app.broker()).admin.callbacks(job.id)) == 1


async def test_a_rollback_that_nobody_mentions_is_a_nack(app: Penstock, url: str) -> None:
    @app.task(name="buy")
    async def buy(context: Context) -> None:
        connection = await asyncpg.connect(url)
        transaction = connection.transaction()
        await transaction.start()
        await context.acomplete_in(connection)
        await transaction.rollback()
        await connection.close()

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
    assert (await orders(url), await count_stored(app)) == (1, 2)
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
    assert (await orders(url), await count_stored(app)) == (0, 0)
    store = local(await app.broker()).store
    kinds = ("workflow", "open_workflow", "workflow_key")
    assert [await store.documents(kind) for kind in kinds] == [[], [], []]
    again = await chain(send.call("ann"), send.call("bob")).aenqueue(key="k")
    assert not again.duplicate
