"""The database of an application takes Penstock's tables and keeps its own."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock import Penstock, stores
from tests.sqlite.scenes import open_file, places, publish, read

pytestmark = pytest.mark.anyio

# Names that Penstock's tables have without their prefix.
TABLES = ("queue", "message", "name", "result", "worker", "schedule", "document", "migration")


@pytest.fixture
def application(path: Path) -> Path:
    """A file with tables, a version and an id of its own, in the default journal mode."""
    with closing(sqlite3.connect(path)) as db, db:
        for table in TABLES:
            db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT)")
            db.execute(f"CREATE INDEX {table}_queue ON {table} (what)")
            db.execute(f"INSERT INTO {table} (what) VALUES ('mine')")
        db.execute("PRAGMA user_version = 41")
        db.execute("PRAGMA application_id = 77")
    return path


def read_own(path: Path) -> list[str]:
    """All that is the application's: its schema, rows and numbers."""
    with closing(sqlite3.connect(path)) as db:
        pragmas = [
            str(db.execute(f"PRAGMA {n}").fetchone()) for n in ("user_version", "application_id")
        ]
        dump = [line for line in db.iterdump() if "penstock_" not in line]
    return [*pragmas, *(line for line in dump if line.startswith(("CREATE", "INSERT")))]


async def test_an_applications_file_takes_the_tables_and_keeps_its_own(application: Path) -> None:
    before = read_own(application)
    async with await open_file(application) as store:
        assert await publish(store) == [1]
        assert await places(store) == {"message": 1, "ready": 1}
    async with await open_file(application) as store:
        assert await publish(store) == [2]
        assert all(check.ok for check in await store.examine() if check.name != "file mode")
    assert read_own(application) == before


async def test_every_table_and_index_begins_with_the_prefix(path: Path) -> None:
    async with await open_file(path) as store:
        await store.dialect.index_types()
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema")]
    assert [n for n in names if not n.startswith(("penstock_", "sqlite_"))] == []


async def test_migrate_plans_and_moves_into_an_applications_file(application: Path) -> None:
    url = f"sqlite:///{application}"
    content = read(application)
    steps = await stores.migrate(url, plan=True)
    assert read(application) == content
    assert not await stores.exists(url)
    assert await stores.migrate(url) == steps != []
    assert await stores.exists(url)
    assert await stores.migrate(url) == []


def test_a_row_and_its_job_are_written_together_in_an_applications_file(application: Path) -> None:
    app = Penstock(f"sqlite:///{application}")

    @app.task
    def send(number: int) -> None: ...

    send.enqueue(1)
    with closing(sqlite3.connect(application)) as db:
        db.execute("INSERT INTO message (what) VALUES ('new')")
        send.options(connection=db).enqueue(2)
        db.rollback()
        assert db.execute("SELECT count(*) FROM message").fetchone() == (1,)
        assert db.execute("SELECT count(*) FROM penstock_message").fetchone() == (1,)
    app.close()
