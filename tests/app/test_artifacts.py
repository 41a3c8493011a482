"""Files that a run attaches, and whoever has the job reads."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from penstock import Context, Penstock
from penstock.artifacts.rules import Artifact
from penstock.errors import InvalidInput, InvalidState, NotFound
from penstock.model.message import State
from tests.app.scenes import working

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Penstock]:
    made = Penstock(f"sqlite:///{tmp_path}/queue.db")
    yield made
    await made.aclose()


def uploads(home: Path) -> list[Path]:
    return list(home.glob("queue.db.artifacts/*/.uploads/*"))


async def test_a_run_attaches_bytes_and_files(app: Penstock, tmp_path: Path) -> None:
    @app.task
    async def report(context: Context) -> str:
        await context.aattach("a.csv", b"a,b\n")
        with TemporaryDirectory() as folder:
            path = Path(folder) / "chart"
            path.write_bytes(b"a picture")
            context.attach("chart.png", path)
        return "done"

    job = await report.aenqueue()
    assert await job.aartifacts() == []
    async with working(app):
        assert await job.aresult(30) == "done"
    assert await job.aartifacts() == [Artifact("a.csv", 4), Artifact("chart.png", 9)]
    assert await job.aartifact("a.csv") == b"a,b\n"
    await job.adownload("chart.png", tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == b"a picture"
    with pytest.raises(NotFound, match="no artifact named 'other'"):
        await job.aartifact("other")
    assert uploads(tmp_path) == []


async def test_a_run_that_does_not_complete_shows_nothing(app: Penstock, tmp_path: Path) -> None:
    @app.task
    async def report(context: Context) -> None:
        context.attach(f"{context.attempt}.txt", b"a")
        if context.attempt == 1:
            context.nack(delay=0)
        else:
            context.attach("more.txt", b"b")

    async with working(app):
        job = await report.aenqueue()
        await job.aresult(30)
    assert [each.name for each in await job.aartifacts()] == ["2.txt", "more.txt"]
    assert uploads(tmp_path) == []


async def test_a_run_whose_files_cannot_be_kept_has_failed(app: Penstock, tmp_path: Path) -> None:
    @app.task(max_attempts=1)
    def report(context: Context) -> str:
        context.attach("a.txt", b"a")
        context.attach("A.txt", b"a")
        return "done"

    async with working(app):
        job = await report.aenqueue()
        record = await job.wait_for_end()
    assert record.state is State.DEAD
    assert "differ only in case" in (record.error or "")
    assert uploads(tmp_path) == []


@pytest.mark.parametrize(("name", "content"), [("../a", b"a"), ("a", "text"), ("a", None)])
async def test_what_cannot_be_a_file_is_refused_at_once(
    app: Penstock, name: str, content: bytes
) -> None:
    refused: list[bool] = []

    @app.task
    async def report(context: Context) -> None:
        with pytest.raises(InvalidInput):
            context.attach(name, content)
        refused.append(True)

    await report()
    async with working(app):
        await (await report.aenqueue()).aresult(30)
    assert refused == [True, True]


async def test_a_completion_in_ones_own_transaction_takes_no_files(
    app: Penstock, tmp_path: Path
) -> None:
    @app.task
    def report(context: Context) -> None:
        connection = sqlite3.connect(tmp_path / "queue.db")
        context.attach("a.txt", b"a")
        with pytest.raises(InvalidState, match="complete_in"):
            context.complete_in(connection)
        connection.close()

    async with working(app):
        job = await report.aenqueue()
        await job.aresult(30)
    assert [each.name for each in await job.aartifacts()] == ["a.txt"]


async def test_the_place_is_named_where_the_app_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ARTIFACTS", str(tmp_path / "by-environment"))
    for app, place in (
        (Penstock("sqlite://"), tmp_path / "by-environment"),
        (Penstock("sqlite://", artifacts=tmp_path / "said"), tmp_path / "said"),
    ):

        @app.task
        async def report(context: Context) -> None:
            context.attach("a.txt", b"a")

        async with working(app):
            await (await report.aenqueue()).aresult(30)
        assert [path.name for path in place.rglob("*") if path.is_file()] == ["a.txt"]
        await app.aclose()


async def test_a_store_that_is_no_file_has_no_place_by_itself() -> None:
    app = Penstock("sqlite://")

    @app.task(max_attempts=1)
    async def report(context: Context) -> None:
        context.attach("a.txt", b"a")

    async with working(app):
        record = await (await report.aenqueue()).wait_for_end()
    assert "set Penstock(artifacts=...) or PENSTOCK_ARTIFACTS" in (record.error or "")
    await app.aclose()


def test_callers_without_a_loop_read_them(tmp_path: Path) -> None:
    app = Penstock(f"sqlite:///{tmp_path}/queue.db")

    @app.task
    def report(context: Context) -> None:
        context.attach("a.txt", b"a")

    job = report.enqueue()

    async def work() -> None:
        async with working(app):
            await job.aresult(30)

    app.run(work())
    assert (job.artifacts(), job.artifact("a.txt")) == ([Artifact("a.txt", 1)], b"a")
    job.download("a.txt", tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == b"a"
    app.close()
