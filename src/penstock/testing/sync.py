"""Simulates apps for tests without an event loop, as of Flask and Django."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

from penstock.app.app import Penstock
from penstock.app.job import Job
from penstock.app.task import Call
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.errors import InvalidState
from penstock.portal import Portal
from penstock.testing.simulation import ManualClock, Simulation

T = TypeVar("T")


class SimulationPortal(Portal):
    """The event loop of a simulation, which an app under test cannot close."""

    def close(self) -> None:
        """Does nothing: the simulation goes on after `app.close()`."""

    def shut_down(self) -> None:
        super().close()


class SyncSimulation:
    """Runs apps in virtual time. Plain handlers run on the thread of the test."""

    def __init__(self, simulation: Simulation, portal: SimulationPortal) -> None:
        self.simulation = simulation
        self.portal = portal
        self.portals: list[tuple[Penstock, Portal]] = []
        # Handlers to run on the thread of the test; None ends the drive.
        self.calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.driving = False

    @classmethod
    @contextmanager
    def open(
        cls, *apps: Penstock, clock: ManualClock | None = None, eager: bool = False
    ) -> "Iterator[SyncSimulation]":
        """Opens a simulation of these apps. With `eager`, `enqueue` also runs what it enqueued."""
        portal = SimulationPortal()
        opening = Simulation.open(clock=clock)
        simulated = cls(portal.run(opening.__aenter__()), portal)
        try:
            for app in apps:
                simulated.use(app, eager=eager)
            yield simulated
        finally:
            simulated.release_apps()
            portal.run(opening.__aexit__(None, None, None))
            portal.shut_down()

    @property
    def clock(self) -> ManualClock:
        return self.simulation.clock

    @property
    def broker(self) -> BrokerInterface:
        return self.simulation.broker

    def use(self, app: Penstock, *, eager: bool = False) -> None:
        """Connects an app: it publishes here, and its tasks, subscribers and crons run here."""
        self.portals.append((app, app.portal))
        app.portal = self.portal
        self.portal.run(self.simulation.use(app, call=self.call_on_test_thread))
        if eager:
            vars(app)["enqueue_many"] = self.make_eager(app)

    def release_apps(self) -> None:
        for app, portal in self.portals:
            app.portal = portal
            vars(app).pop("enqueue_many", None)

    def make_eager(self, app: Penstock) -> Callable[..., list[Job[Any]]]:
        def enqueue_many(calls: Iterable[Call[Any]], *, atomic: bool = False) -> list[Job[Any]]:
            jobs = Penstock.enqueue_many(app, calls, atomic=atomic)
            if not self.driving:
                self.run()
            return jobs

        return enqueue_many

    def run(self) -> None:
        """Runs everything that can run now, without moving the clock."""
        self.run_calls(self.simulation.run_until_idle())

    def advance(self, duration: str | float) -> None:
        """Lets time pass: "1h30m", or seconds. Agents and handlers run when they are due."""
        self.run_calls(self.simulation.advance(duration))

    def signal(self, job: Job[Any] | int, name: str, value: object = None) -> None:
        """Sends a signal to a job and runs what it resumes."""
        self.run_calls(self.simulation.signal(job, name, value))

    def decide(
        self,
        choice: str,
        *,
        step: int | None = None,
        by: str = "tester",
        inputs: dict[str, Any] | None = None,
        comment: str = "",
    ) -> None:
        """Decides the open human step, and runs what it resumes."""
        self.run_calls(
            self.simulation.decide(choice, step=step, by=by, inputs=inputs, comment=comment)
        )

    def run_calls(self, work: Coroutine[Any, Any, None]) -> None:
        if self.driving:
            work.close()
            raise InvalidState("the simulation is running; a handler cannot run it")
        self.driving = True
        try:
            ended = asyncio.run_coroutine_threadsafe(work, self.portal.ensure_loop())
            ended.add_done_callback(lambda _: self.calls.put(None))
            while (call := self.calls.get()) is not None:
                call()
            ended.result()
        finally:
            self.driving = False

    async def call_on_test_thread(self, function: Callable[[], T]) -> T:
        called: Future[T] = Future()

        def call() -> None:
            try:
                called.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                called.set_exception(error)

        self.calls.put(call)
        return await asyncio.wrap_future(called)
