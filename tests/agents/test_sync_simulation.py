"""Tests without an event loop run apps in virtual time, on their own thread."""

import threading
from pathlib import Path

import pytest

from penstock import JobFailed, Penstock, State
from penstock.errors import InvalidState
from penstock.testing import SyncSimulation


@pytest.fixture
def app(tmp_path: Path) -> Penstock:
    """One whose own store must never be opened."""
    return Penstock(f"sqlite:///{tmp_path / 'missing' / 'queue.db'}")


def test_handlers_run_on_the_thread_of_the_test_and_may_enqueue(
    app: Penstock, penstock_sync_simulation: SyncSimulation
) -> None:
    threads: list[threading.Thread] = []

    @app.task
    def first() -> None:
        threads.append(threading.current_thread())
        second.enqueue(2)

    @app.task
    async def second(number: int) -> int:
        await third.aenqueue(number)
        return number

    @app.task
    def third(number: int) -> None:
        threads.append(threading.current_thread())

    penstock_sync_simulation.use(app)
    job = first.enqueue()
    assert job.status() is State.READY
    penstock_sync_simulation.run()
    assert job.status() is State.COMPLETED
    assert threads == [threading.main_thread()] * 2


def test_retries_and_crons_run_when_they_are_due(
    app: Penstock, penstock_sync_simulation: SyncSimulation
) -> None:
    runs: list[str] = []

    @app.task(max_attempts=3)
    def fail() -> None:
        runs.append("fail")
        raise ConnectionError("down")

    @app.task(cron="0 9 * * *")
    def report() -> None:
        runs.append("report")

    penstock_sync_simulation.use(app)
    job = fail.enqueue()
    penstock_sync_simulation.run()
    assert (runs, job.status()) == (["fail"], State.SCHEDULED)
    penstock_sync_simulation.advance("1d")
    assert (runs, job.status()) == (["fail"] * 3 + ["report"], State.DEAD)
    with pytest.raises(JobFailed, match="ConnectionError: down"):
        job.result()


def test_an_eager_enqueue_runs_the_job_and_what_it_enqueues(app: Penstock) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    def quadruple(number: int) -> int:
        later = double.enqueue(2 * number)
        assert later.status() is State.READY
        return 4 * number

    with SyncSimulation.open(app, eager=True):
        assert double.enqueue(2).result() == 4
        assert quadruple.enqueue(2).result() == 8


def test_a_connection_has_no_effect_in_a_simulation(app: Penstock) -> None:
    @app.task
    def send() -> None: ...

    with SyncSimulation.open(app):
        assert send.options(connection="of another database").enqueue().status() is State.READY


def test_an_app_that_is_closed_meanwhile_can_still_be_used(app: Penstock) -> None:
    @app.task
    def send() -> None: ...

    with SyncSimulation.open(app) as simulation:
        job = send.enqueue()
        app.close()
        simulation.run()
        assert job.status() is State.COMPLETED


def test_a_handler_cannot_run_the_simulation_it_runs_in(app: Penstock) -> None:
    with SyncSimulation.open(app) as simulation:

        @app.task
        def nested() -> None:
            with pytest.raises(InvalidState, match="a handler cannot run it"):
                simulation.run()

        simulation.use(app)
        job = nested.enqueue()
        simulation.run()
        assert job.status() is State.COMPLETED


def test_an_app_is_itself_again_after_a_simulation(tmp_path: Path) -> None:
    app = Penstock(f"sqlite:///{tmp_path / 'queue.db'}")

    @app.task
    def send() -> None: ...

    with SyncSimulation.open(app, eager=True):
        assert send.enqueue().status() is State.COMPLETED
    assert send.enqueue().status() is State.READY
    app.close()
    assert (tmp_path / "queue.db").exists()
