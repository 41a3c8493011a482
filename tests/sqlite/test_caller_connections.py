"""Connections of sqlite3, aiosqlite, SQLAlchemy and Django enqueue alike."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiosqlite
import django
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from penstock import Context, Penstock
from penstock.app.task import AsyncTask
from penstock.errors import InvalidInput, InvalidState
from penstock.model.message import State
from tests.app.scenes import until, working
from tests.local import local

pytestmark = pytest.mark.anyio

ORDER = "INSERT INTO orders VALUES ('tea')"


class RollBack(Exception):
    """Raised inside a transaction to undo it."""


@pytest.fixture
async def app(path: Path) -> AsyncIterator[Penstock]:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE orders (item TEXT)")
    app = Penstock(f"sqlite:///{path}")
    await app.asetup()
    yield app
    await app.aclose()


@pytest.fixture
def send(app: Penstock) -> AsyncTask[[str], None]:
    @app.task(name="send")
    async def send(to: str) -> None: ...

    return send


@asynccontextmanager
async def with_sqlite3(path: Path) -> AsyncIterator[Any]:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(ORDER)
        yield db


@asynccontextmanager
async def with_aiosqlite(path: Path) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path) as db:
        await db.execute(ORDER)
        yield db
        await db.commit()


@asynccontextmanager
async def with_session(path: Path) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        with Session(engine) as session, session.begin():
            session.execute(sqlalchemy.text(ORDER))
            yield session
    finally:
        engine.dispose()


@asynccontextmanager
async def with_scoped_session(path: Path) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    session = scoped_session(sessionmaker(engine))
    try:
        with session.begin():
            session.execute(sqlalchemy.text(ORDER))
            yield session
    finally:
        session.remove()
        engine.dispose()


@asynccontextmanager
async def with_sqlalchemy_connection(path: Path) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(ORDER))
            yield connection
    finally:
        engine.dispose()


@asynccontextmanager
async def with_async_session(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    try:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(sqlalchemy.text(ORDER))
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def with_async_connection(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    try:
        async with engine.begin() as connection:
            await connection.execute(sqlalchemy.text(ORDER))
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def with_django(path: Path) -> AsyncIterator[Any]:
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    # The proxy `django.db.connection` leads to such a wrapper.
    connections.databases["penstock"] = {
        **connections.databases["default"],
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
    }
    connection = connections["penstock"]
    try:
        with transaction.atomic(using="penstock"):
            with connection.cursor() as cursor:
                cursor.execute(ORDER)
            yield connection
    finally:
        connection.close()
        del connections["penstock"]
        del connections.databases["penstock"]


Opening = Callable[[Path], AbstractAsyncContextManager[Any]]
KINDS: dict[str, Opening] = {
    "sqlite3": with_sqlite3,
    "aiosqlite": with_aiosqlite,
    "session": with_session,
    "scoped session": with_scoped_session,
    "connection": with_sqlalchemy_connection,
    "async session": with_async_session,
    "async connection": with_async_connection,
    "django": with_django,
}
ASYNC = ("aiosqlite", "async session", "async connection")


@pytest.fixture(params=KINDS)
def opening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Opening:
    # These tests are coroutines, in which Django would refuse to work.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    return KINDS[request.param]


def count(path: Path) -> tuple[int, int]:
    """Orders and messages, as another program sees them."""
    with closing(sqlite3.connect(path)) as db:
        orders, messages = (
            db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("orders", "penstock_message")
        )
    return orders, messages


async def test_a_row_and_its_job_are_committed_together(
    send: AsyncTask[[str], None], path: Path, opening: Opening
) -> None:
    async with opening(path) as connection:
        await send.options(connection=connection).aenqueue("a@b")
        assert count(path) == (0, 0)
    assert count(path) == (1, 1)


async def test_a_rollback_takes_both(
    send: AsyncTask[[str], None], path: Path, opening: Opening
) -> None:
    async def enqueue_and_fail() -> None:
        async with opening(path) as connection:
            await send.options(connection=connection).aenqueue("a@b")
            raise RollBack

    with pytest.raises(RollBack):
        await enqueue_and_fail()
    assert count(path) == (0, 0)


async def test_a_queue_that_is_missing_is_named_at_once(
    app: Penstock, path: Path, opening: Opening
) -> None:
    @app.task(queue="mail")
    async def post(to: str) -> None: ...

    async with opening(path) as connection:
        with pytest.raises(InvalidState, match=r"queue 'mail' does not exist.*app\.setup\(\)"):
            await post.options(connection=connection).aenqueue("a@b")


async def test_a_plain_enqueue_inside_the_transaction_is_refused(
    send: AsyncTask[[str], None], path: Path, opening: Opening
) -> None:
    async with opening(path) as connection:
        await send.options(connection=connection).aenqueue("a@b")
        with pytest.raises(InvalidState, match="you have an open transaction"):
            await send.aenqueue("c@d")
    await send.aenqueue("c@d")
    assert count(path) == (1, 2)


async def test_a_handlers_effect_and_the_end_of_its_message_are_one(
    app: Penstock, path: Path, opening: Opening
) -> None:
    @app.task(name="order")
    async def order(context: Context) -> None:
        async with opening(path) as connection:
            await context.acomplete_in(connection)

    job = await order.aenqueue()
    async with working(app) as worker:
        await until(lambda: worker.finished == 1)
    assert await job.astatus() is State.COMPLETED
    assert count(path) == (1, 1)


@pytest.mark.parametrize("kind", ASYNC)
async def test_an_async_connection_is_not_for_sync_code(
    app: Penstock, path: Path, kind: str
) -> None:
    broker = local(await app.broker())
    async with KINDS[kind](path) as connection:
        with pytest.raises(InvalidInput, match=r"async|not a connection of"):
            broker.store.enqueue_on(connection, [])


async def test_what_is_no_connection_is_refused(send: AsyncTask[[str], None]) -> None:
    with pytest.raises(InvalidInput, match="str is not a connection of sqlite3, aiosqlite"):
        await send.options(connection="app.db").aenqueue("a@b")
