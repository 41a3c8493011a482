"""Enqueueing in the caller's own sqlite3 transaction."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from penstock import Draft, Penstock, chain, group
from penstock.app.task import Task
from penstock.errors import (
    Conflict,
    InvalidInput,
    InvalidState,
    NotFound,
    QueueFull,
    StoreBusy,
    StoreError,
)
from penstock.model.message import State
from penstock.stores.sqlite import connection
from penstock.stores.sqlite.notifier import SocketNotifier
from tests.app.scenes import CAP, until, working
from tests.local import local

Open = Callable[..., sqlite3.Connection]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def app(path: Path) -> Iterator[Penstock]:
    app = Penstock(f"sqlite:///{path}")
    app.run(app.broker())
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE orders (item TEXT)")
    yield app
    app.close()


@pytest.fixture
def send(app: Penstock) -> Task[[str], None]:
    @app.task(name="send")
    def send(to: str) -> None: ...

    return send


@pytest.fixture
def connect(path: Path) -> Iterator[Open]:
    opened: list[sqlite3.Connection] = []

    def connect(**options: Any) -> sqlite3.Connection:
        opened.append(sqlite3.connect(path, **options))
        return opened[-1]

    yield connect
    for db in opened:
        db.close()


def has(done: list[int], count: int) -> bool:
    return len(done) == count


def count_stored(app: Penstock) -> int:
    return len(app.run(find(app)))


async def find(app: Penstock) -> list[Any]:
    return await (await app.broker()).admin.find("default", limit=1_000)


def test_a_rollback_takes_the_job_with_it(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    db.execute("INSERT INTO orders VALUES ('pipe')")
    send.options(connection=db).enqueue("a@b")
    db.rollback()
    assert count_stored(app) == 0
    assert db.execute("SELECT count(*) FROM orders").fetchone() == (0,)


def test_a_commit_publishes_the_job_with_the_callers_own_rows(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    with db:
        db.execute("INSERT INTO orders VALUES ('pipe')")
        job = send.options(connection=db).enqueue("a@b")
        assert count_stored(app) == 0
    assert job.status() is State.READY
    assert db.execute("SELECT count(*) FROM orders").fetchone() == (1,)


def test_a_transaction_is_begun_if_there_is_none(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    send.options(connection=db).enqueue("a@b")
    assert db.in_transaction
    assert count_stored(app) == 0
    db.commit()
    assert count_stored(app) == 1


def test_many_calls_go_into_one_transaction(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    inside = send.options(connection=db)
    jobs = app.enqueue_many(inside.call(str(number)) for number in range(5))
    assert count_stored(app) == 0
    db.commit()
    assert [job.status() for job in jobs] == [State.READY] * 5
    with pytest.raises(InvalidInput, match="same connection"):
        app.enqueue_many([inside.call("a"), send.call("b")])


def dictionaries(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("level", ["", "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
@pytest.mark.parametrize("factory", [None, sqlite3.Row, dictionaries])
@pytest.mark.parametrize("text", [str, bytes])
def test_whatever_the_connection_is_set_to_is_left_alone(
    app: Penstock, send: Task[[str], None], connect: Open, level: Any, factory: Any, text: Any
) -> None:
    db = connect(isolation_level=level)
    db.row_factory, db.text_factory = factory, text
    db.execute("INSERT INTO orders VALUES ('pipe')")
    job = send.options(connection=db, unique="x", name="letter").enqueue("a@b")
    assert (db.row_factory, db.text_factory, db.isolation_level) == (factory, text, level)
    db.commit()
    assert job.status() is State.READY


def test_in_autocommit_mode_the_job_is_published_at_once(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect(isolation_level=None)
    job = send.options(connection=db).enqueue("a@b")
    assert job.status() is State.READY
    db.execute("BEGIN")
    send.options(connection=db).enqueue("c@d")
    assert db.in_transaction
    db.execute("ROLLBACK")
    assert count_stored(app) == 1


def test_a_savepoint_of_the_callers_takes_the_job_back(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect(isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    send.options(connection=db).enqueue("kept")
    db.execute("SAVEPOINT mine")
    send.options(connection=db).enqueue("taken back")
    db.execute("ROLLBACK TO mine")
    db.execute("COMMIT")
    assert count_stored(app) == 1


def test_a_read_transaction_that_others_have_written_past_is_refused(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect(isolation_level=None)
    db.execute("BEGIN")
    db.execute("SELECT * FROM orders").fetchall()
    send.enqueue("from elsewhere")
    with pytest.raises(StoreBusy, match="BEGIN IMMEDIATE"):
        send.options(connection=db).enqueue("a@b")
    assert db.in_transaction
    db.execute("COMMIT")
    assert count_stored(app) == 1


def test_a_fresh_read_transaction_becomes_a_writing_one(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect(isolation_level=None)
    db.execute("BEGIN")
    db.execute("SELECT * FROM orders").fetchall()
    send.options(connection=db).enqueue("a@b")
    db.execute("COMMIT")
    assert count_stored(app) == 1


@pytest.mark.parametrize("other", ["other.db", ":memory:"])
def test_a_connection_to_another_file_is_refused(
    send: Task[[str], None], tmp_path: Path, other: str
) -> None:
    file = other if other == ":memory:" else str(tmp_path / other)
    with closing(sqlite3.connect(file)) as db:
        with pytest.raises(InvalidInput, match="one transaction cannot span two databases"):
            send.options(connection=db).enqueue("a@b")
        assert not db.in_transaction


def test_what_is_no_usable_connection_is_refused(
    app: Penstock, send: Task[[str], None], connect: Open, path: Path
) -> None:
    with pytest.raises(InvalidInput, match="str is not a connection of sqlite3"):
        send.options(connection="queue.db").enqueue("a@b")
    gone = connect()
    gone.close()
    with pytest.raises(InvalidInput, match="closed database"):
        send.options(connection=gone).enqueue("a@b")
    foreign = connect()
    with ThreadPoolExecutor(1) as thread, pytest.raises(InvalidInput, match="thread"):
        thread.submit(send.options(connection=foreign).enqueue, "a@b").result()
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as read_only,
        pytest.raises(StoreError, match="readonly"),
    ):
        send.options(connection=read_only).enqueue("a@b")


def test_another_path_to_the_same_file_is_the_same_file(
    app: Penstock, send: Task[[str], None], path: Path
) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with closing(sqlite3.connect(link)) as db, db:
        send.options(connection=db).enqueue("a@b")
    assert count_stored(app) == 1


def test_a_refused_job_leaves_no_transaction_behind(app: Penstock, connect: Open) -> None:
    app.queue("small", max_depth=1)

    @app.task(queue="small")
    def send(to: str) -> None: ...

    send.enqueue("a")
    db = connect()
    with pytest.raises(QueueFull):
        send.options(connection=db).enqueue("b")
    assert not db.in_transaction
    db.execute("INSERT INTO orders VALUES ('pipe')")
    with pytest.raises(QueueFull):
        send.options(connection=db).enqueue("b")
    db.commit()
    assert db.execute("SELECT count(*) FROM orders").fetchone() == (1,)


def test_a_plain_enqueue_by_whoever_holds_the_transaction_is_refused_at_once(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    send.options(connection=db).enqueue("a@b")
    for call in (
        lambda: send.enqueue("c@d"),
        lambda: app.enqueue_many([send.call("c@d")]),
        lambda: app.publish(Draft()),
    ):
        with pytest.raises(InvalidState, match="open transaction"):
            call()
    db.commit()
    send.enqueue("c@d")
    assert count_stored(app) == 2


def test_a_plain_enqueue_of_another_thread_waits_for_the_commit(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    send.options(connection=db).enqueue("a@b")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(send.enqueue, "c@d")
        assert not waiting.done()
        db.commit()
        assert waiting.result(CAP).status() is State.READY
    assert count_stored(app) == 2


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.1)


def test_a_transaction_that_is_never_committed_does_not_hang_others(
    impatient: None, app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    send.options(connection=db).enqueue("a@b")
    with ThreadPoolExecutor(1) as thread, pytest.raises(StoreBusy, match="try again"):
        thread.submit(send.enqueue, "c@d").result(CAP)
    db.rollback()


def test_the_store_is_opened_in_the_middle_of_a_transaction(
    app: Penstock, connect: Open, path: Path
) -> None:
    """As in a process that enqueues for the first time."""
    other = Penstock(f"sqlite:///{path}")

    @other.task
    def send(to: str) -> None: ...

    db = connect()
    db.execute("INSERT INTO orders VALUES ('pipe')")
    send.options(connection=db).enqueue("a@b")
    db.commit()
    assert count_stored(app) == 1
    other.close()


def test_a_queue_that_is_not_made_yet_is_refused_at_once(app: Penstock, connect: Open) -> None:
    @app.task(queue="mail")
    def send(to: str) -> None: ...

    db = connect()
    db.execute("INSERT INTO orders VALUES ('pipe')")
    with pytest.raises(InvalidState, match="queue 'mail'"):
        send.options(connection=db).enqueue("a@b")
    db.rollback()
    job = send.options(connection=db).enqueue("a@b")
    db.commit()
    assert job.status() is State.READY


@pytest.mark.anyio
async def test_a_worker_is_woken_by_the_callers_commit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of a foreign connection rings no bell, and the worker looks every half minute."""
    monkeypatch.setattr(SocketNotifier, "longest_wait", 3_600.0)
    app = Penstock(f"sqlite:///{path}")
    done: list[int] = []

    @app.task
    async def send(number: int) -> None:
        done.append(number)

    async with working(app, max_interval=30) as worker:
        await (await send.aenqueue(0)).aresult(30)
        with closing(sqlite3.connect(path)) as db, anyio.fail_after(20):
            for number in range(1, 6):
                await until(lambda: not worker.held)
                await send.options(connection=db).aenqueue(number)
                db.commit()
                await until(partial(has, done, number + 1))
    await app.aclose()


@pytest.mark.anyio
async def test_another_coroutine_waits_instead_of_being_refused(path: Path) -> None:
    app = Penstock(f"sqlite:///{path}")

    @app.task
    async def send(number: int) -> None: ...

    with closing(sqlite3.connect(path)) as db:
        await send.aenqueue(0)
        begun, may_commit = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            await send.options(connection=db).aenqueue(1)
            begun.set()
            with pytest.raises(InvalidState):
                await send.aenqueue(2)
            await may_commit.wait()
            db.commit()

        async def enqueue() -> int:
            await begun.wait()
            asyncio.get_running_loop().call_later(0.05, may_commit.set)
            return (await send.aenqueue(3)).id

        _, id = await asyncio.gather(hold(), enqueue())
    assert id == 3
    await app.aclose()


def test_a_workflow_opens_when_the_caller_commits(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    with db:
        db.execute("INSERT INTO orders VALUES ('tea')")
        with app.workflow("sending", key="k", connection=db) as flow:
            first = flow.add(send.call("ann"))
            flow.add(send.call("bob"), after=first)
        assert count_stored(app) == 0
        assert app.run(look(app)) == 0
    assert count_stored(app) == 2
    assert flow.view().states == (State.READY, State.SCHEDULED)
    again = chain(send.call("ann"), send.call("bob")).build("sending", "k").start()
    assert (again.duplicate, again.ids) == (True, flow.ids)


async def look(app: Penstock) -> int:
    return (await local(await app.broker()).store.resume_held()).seen


def test_a_workflow_never_was_if_the_caller_rolls_back(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    db.execute("INSERT INTO orders VALUES ('tea')")
    flow = chain(send.call("ann"), send.call("bob")).enqueue(key="k", connection=db)
    db.rollback()
    assert count_stored(app) == 0
    with pytest.raises(NotFound):
        flow.view()
    assert not chain(send.call("ann"), send.call("bob")).enqueue(key="k").duplicate


def test_a_second_workflow_with_the_key_of_the_transaction_is_refused(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    chain(send.call("ann")).enqueue(key="k", connection=db)
    with pytest.raises(Conflict):
        chain(send.call("ann")).enqueue(key="k", connection=db)
    db.commit()
    assert count_stored(app) == 1


def test_a_workflow_in_a_transaction_has_at_most_1000_nodes(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect()
    with pytest.raises(InvalidInput, match="1,001 nodes"):
        group(*[send.call("ann")] * 1_001).enqueue(connection=db)
    assert len(group(*[send.call("ann")] * 1_000).enqueue(connection=db).ids) == 1_000
    db.commit()
    assert app.run(count(app)) == 1_000


async def count(app: Penstock) -> int:
    return sum((await (await app.broker()).depths()).values())


def test_a_workflow_needs_a_transaction(
    app: Penstock, send: Task[[str], None], connect: Open
) -> None:
    db = connect(isolation_level=None)
    with pytest.raises(InvalidInput, match="begin a transaction first"):
        chain(send.call("ann")).enqueue(connection=db)
    with pytest.raises(InvalidInput, match="to the workflow"):
        chain(send.options(connection=db).call("ann")).enqueue()
