"""What the app is told of its jobs' ends."""

import asyncio
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from penstock import Context, Draft, Penstock, Reject
from penstock.errors import InvalidInput
from tests.app.scenes import until, working

pytestmark = pytest.mark.anyio


async def test_hooks_hear_of_the_events_they_asked_for(app: Penstock) -> None:
    heard: list[tuple[str, str, str | None]] = []

    def hear(event: str, context: Context, error: BaseException | None) -> None:
        heard.append((event, context.delivery.type, None if error is None else str(error)))

    @app.task(name="well")
    async def well() -> None: ...

    @app.task(name="ill", max_attempts=1)
    async def ill() -> None:
        raise ValueError("boom")

    @app.task(name="again")
    async def again() -> None:
        raise OSError("later")

    app.on("completed", hear)
    app.on("dead", hear)
    app.on("scheduled", hear)
    for task in (well, ill, again):
        await task.aenqueue()
    async with working(app) as worker:
        await until(lambda: worker.completed + worker.settled == 3)
    assert sorted(heard, key=str) == [
        ("completed", "well", None),
        ("dead", "ill", "boom"),
        ("scheduled", "again", "later"),
    ]


async def test_a_star_hears_of_everything(app: Penstock) -> None:
    heard: list[str] = []
    app.on("*", lambda event, context, error: heard.append(event))

    @app.task
    async def well() -> None: ...

    await well.aenqueue()
    await app.apublish(Draft(type="unknown"))
    async with working(app) as worker:
        await until(lambda: worker.completed + worker.settled == 2)
    assert sorted(heard) == ["completed", "scheduled"]


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3)])
async def test_an_error_in_a_hook_is_logged_and_hurts_nobody(
    app: Penstock, error: BaseException
) -> None:
    heard: list[str] = []

    def broken(event: str, context: Context, raised: BaseException | None) -> None:
        raise error

    app.on("*", broken)
    app.on("*", lambda event, context, raised: heard.append(event))

    @app.task
    async def well(number: int) -> int:
        return number

    with capture_logs() as logs:
        async with working(app):
            jobs = await app.aenqueue_many(well.call(number) for number in range(3))
            assert [await job.aresult(30) for job in jobs] == [0, 1, 2]
    assert [entry["event"] for entry in logs].count("hook_failed") == 3
    assert heard == ["completed"] * 3


async def test_a_lost_lease_is_told(app: Penstock) -> None:
    heard: list[str] = []
    app.on("lease_lost", lambda event, context, error: heard.append(event))
    begun = asyncio.Event()

    @app.task
    async def work(context: Context) -> None:
        begun.set()
        await until(lambda: context.lost)

    async with working(app, lease=0.3) as worker:
        job = await work.aenqueue()
        await begun.wait()
        await job.acancel(force=True)
        await until(lambda: not worker.held)
    assert heard == ["lease_lost"]


async def test_an_unknown_event_and_a_coroutine_are_refused(app: Penstock) -> None:
    async def later(event: str, context: Context, error: BaseException | None) -> None: ...

    for event in ("complete", "failed"):
        with pytest.raises(InvalidInput, match=f"no event '{event}'; expected one of completed, "):
            app.on(event, lambda event, context, error: None)
    with pytest.raises(InvalidInput, match="coroutine"):
        app.on("completed", cast(Any, later))


async def test_rejected_is_dead(app: Penstock) -> None:
    heard: list[str] = []
    app.on("dead", lambda event, context, error: heard.append(str(error)))

    @app.task
    async def ill() -> None:
        raise Reject("no")

    await ill.aenqueue()
    async with working(app) as worker:
        await until(lambda: worker.settled == 1)
    assert heard == ["no"]
