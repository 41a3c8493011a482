"""Simulates a complete Penstock in memory and in virtual time."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock import stores
from penstock.agents import make_agents
from penstock.agents.human_reminder import HumanReminder
from penstock.agents.reclaimer import Reclaimer
from penstock.agents.scheduler import Scheduler
from penstock.app.app import Penstock
from penstock.app.job import Job
from penstock.broker.local import Broker
from penstock.errors import InvalidInput, InvalidState, StoreError
from penstock.model.message import MICROS_PER_SECOND, Leased, Moment, Nack, Record, State
from penstock.model.store_types import Completion, Query
from penstock.rules.durations import parse_seconds
from penstock.rules.human import Person
from penstock.runner import Agent
from penstock.store import Store
from penstock.testing.apps import PlainCall, call_here, find_app_worker, make_finder
from penstock.testing.faults import Faults

# 2026-01-01 00:00 UTC.
START: Moment = 1_767_225_600_000_000


class ManualClock:
    """The clock of a store under test."""

    def __init__(self, now: Moment = START) -> None:
        self.now = now

    def __call__(self) -> Moment:
        return self.now

    def advance(self, seconds: float) -> None:
        """Moves the clock without running anything, as if the machine slept. May be negative."""
        self.now += round(seconds * 1_000_000)


SimulatedHandler: TypeAlias = Callable[[Leased], Awaitable[bytes | None] | bytes | None]
# Agents that run more often than this run whenever something is due, and not in between. The
# others run then as well, if their interval has passed, and at least once in so many seconds.
MIN_INTERVAL_S = 60.0
MAX_GAP_S = 86_400.0
MAX_RUNS = 100_000


class SimulatedJob(Struct, frozen=True):
    scope: str
    queue: str
    handler: SimulatedHandler


class Simulation:
    """A store, a broker and the agents of some nodes. Nothing runs in the background."""

    def __init__(self, store: Store, clock: ManualClock, nodes: int = 1) -> None:
        self.store = store
        self.clock = clock
        self.broker = Broker(store)
        self.jobs: list[SimulatedJob] = []
        self.apps: list[Penstock] = []
        self.agents: list[Agent] = [
            agent for number in range(nodes) for agent in make_agents(store, f"node-{number}")
        ]
        self.schedulers = [agent for agent in self.agents if isinstance(agent, Scheduler)]
        self.runs_at = dict.fromkeys(self.agents, clock())
        self.troubled = False
        # Handlers have run since the agents did.
        self.handled = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str = "sqlite://",
        *,
        clock: ManualClock | None = None,
        faults: Faults | None = None,
        nodes: int = 1,
    ) -> "AsyncIterator[Simulation]":
        clock = clock or ManualClock()
        async with await stores.open(url, clock=clock) as store:
            simulation = cls(store if faults is None else faults.wrap(store), clock, nodes)
            try:
                yield simulation
            finally:
                simulation.release_apps()

    def handle(self, queue: str, handler: SimulatedHandler, *, scope: str = "default") -> None:
        """Sends messages of the queue to the handler: returning completes, raising nacks."""
        self.jobs.append(SimulatedJob(scope, queue, handler))

    async def use(self, app: Penstock, *, call: PlainCall = call_here) -> None:
        """Connects an app: it publishes here, and its tasks, subscribers and crons run here.

        `call` runs the handlers that are no coroutines.
        """
        app.connections.adopt(make_finder(self.broker))
        self.apps.append(app)
        queues = dict.fromkeys(handler.queue for handler in app.handlers())
        await app.ensure_queues(self.broker, queues)
        await app.prepare(self.broker)
        for queue in queues:
            worker = find_app_worker(app, self.broker, queue, call)
            self.handle(queue, worker, scope=app.scope)

    def release_apps(self) -> None:
        for app in self.apps:
            app.connections.release()

    async def run_until_idle(self) -> None:
        """Runs agents and handlers until none has work at this moment."""
        await self._run(self.agents)

    async def advance(self, duration: str | float) -> None:
        """Lets time pass. Agents and handlers run whenever something is due."""
        until = self.clock() + round(parse_seconds(duration) * MICROS_PER_SECOND)
        await self.run_until_idle()
        while self.clock() < until:
            self._pass(min(until, await self._next_moment()))
            await self._run([agent for agent in self.agents if self._due(agent)])

    async def signal(
        self, job: Job[Any] | int, name: str, value: object = None, *, scope: str = "default"
    ) -> None:
        """Sends a signal to a job and runs what it resumes."""
        id = job if isinstance(job, int) else job.id
        await self.broker.waits.signal(id, name, msgspec.json.encode(value), scope=scope)
        await self.run_until_idle()

    async def decide(
        self,
        choice: str,
        *,
        step: int | None = None,
        by: str = "tester",
        inputs: dict[str, Any] | None = None,
        comment: str = "",
        scope: str = "default",
    ) -> None:
        """Decides the open human step as a person who may decide any, and runs what it resumes.

        With several open steps, `step` is the id of the one to decide.
        """
        person = Person(by, acts_for_all=True, sees_all=True)
        if step is None:
            found = await self.broker.inbox.list_steps(person, view="all", scope=scope)
            if len(found) != 1:
                titles = ", ".join(f"{each.step.id} {each.step.spec.title!r}" for each in found)
                raise InvalidState(
                    f"expected one open human step, found {len(found)}: {titles or '-'}"
                )
            step = found[0].step.id
        await self.broker.inbox.decide(
            step, person, choice, inputs=inputs or {}, comment=comment, scope=scope
        )
        await self.run_until_idle()

    def _due(self, agent: Agent) -> bool:
        return agent.every < MIN_INTERVAL_S or self.runs_at[agent] <= self.clock()

    async def _run(self, agents: list[Agent]) -> None:
        self.troubled = self.handled = False
        for _ in range(MAX_RUNS):
            unfinished = [agent for agent in agents if await self._tick(agent)]
            drained = await self._drain()
            # Handlers may have caused work for agents that have already run in this round.
            self.handled = self.handled or drained
            if not drained and not unfinished and not await self._resume():
                return
            # Handlers make work for the scheduler only: retries that are due at once.
            agents = list(dict.fromkeys([*unfinished, *self.schedulers]))
        raise InvalidState(
            f"the agents are not idle after {MAX_RUNS} rounds without the clock moving"
        )

    async def _drain(self) -> bool:
        """Runs handlers until no message is left. Returns True if there was one."""
        for number in range(MAX_RUNS):
            if not any([await self._work(job) for job in self.jobs]):
                return number > 0
        raise InvalidState(
            f"the handlers are not idle after {MAX_RUNS} rounds without the clock moving"
        )

    async def _resume(self) -> bool:
        """Resumes what an agent ended that runs after the scheduler. True if there was any."""
        try:
            return (await self.store.resume_held()).resumed > 0
        except StoreError:
            self.troubled = True
            return False

    async def _tick(self, agent: Agent) -> bool:
        """Runs an agent once, and returns True if it has more to do. Retries a StoreError later."""
        try:
            wait = await agent.tick()
        except StoreError:
            self.troubled = True
            wait = 1.0
        self.runs_at[agent] = self.clock() + round(wait * MICROS_PER_SECOND)
        return wait == 0

    async def _work(self, job: SimulatedJob) -> bool:
        """Runs the handler once, as a worker would."""
        try:
            taken = await self.broker.claim(job.queue, consumer="simulation", scope=job.scope)
            for message in taken.messages:
                await self._handle(message, job)
        except StoreError:
            self.troubled = True
            return False
        return bool(taken.messages)

    async def _handle(self, message: Leased, job: SimulatedJob) -> None:
        """Runs the handler and settles, which has no effect if the handler did so itself."""
        try:
            answer = job.handler(message)
            result: object = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001 - handed to the broker
            await self.broker.settle_many([(message, Nack(f"{type(error).__name__}: {error}"))])
        else:
            if not isinstance(result, bytes | None):
                kind = type(result).__name__
                raise InvalidInput(
                    f"the handler of {job.queue!r} must return bytes or None, not {kind}"
                )
            await self.broker.complete_many([Completion(message.id, message.fence, result)])

    def _pass(self, moment: Moment) -> None:
        """Moves the clock to the next moment at which something is due.

        The reclaimers take a gap for an outage of the store, so they count as having looked: no
        lease ends in between.
        """
        for each in self.agents:
            if isinstance(each, Reclaimer) and each.watch is not None and not self.troubled:
                each.watch = replace(each.watch, last_at=moment)
        self.clock.now = moment

    async def _next_moment(self) -> Moment:
        """Returns when something is due next."""
        now = self.clock()
        soon, quiet = now + MICROS_PER_SECOND, now + round(MIN_INTERVAL_S * MICROS_PER_SECOND)
        moments = [now + round(MAX_GAP_S * MICROS_PER_SECOND)]
        try:
            moments += await self._due_moments()
            if not self.handled and min(moments) > quiet:
                moments += await self._find_expiries()
        except StoreError:
            self.troubled = True
        if self.troubled:
            moments.append(soon)
        if self.handled:
            moments.append(quiet)
        return min(moment if moment > now else soon for moment in moments)

    async def _due_moments(self) -> list[Moment]:
        looked, promoted = await self.store.resume_held(1), await self.store.promote(1)
        ticks = [each.next_at for each in await self.store.schedules() if not each.paused]
        leases = [record.lease_until for record in await self._find(State.CLAIMED)]
        ends = [end + 1 for end in leases if end is not None]
        waits = [each for each in (promoted.next_at, looked.next_at) if each is not None]
        for agent in self.agents:
            if isinstance(agent, HumanReminder) and agent.due:
                waits.append(agent.due[0][0])
        return ticks + ends + waits

    async def _find_expiries(self) -> list[Moment]:
        """Returns when waiting messages expire. Before a short pause their agent runs anyway."""
        found = [*await self._find(State.READY), *await self._find(State.SCHEDULED)]
        return [record.expires_at + 1 for record in found if record.expires_at is not None]

    async def _find(self, state: State) -> list[Record]:
        queues = await self.store.queues()
        return await self.store.find(Query(tuple(each.id for each in queues), state, limit=1_000))
