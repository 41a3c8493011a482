"""Simulates a complete Penstock in memory and in virtual time."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from penstock import stores
from penstock.agents import make_agents
from penstock.agents.reclaimer import Reclaimer
from penstock.agents.scheduler import Scheduler
from penstock.app.app import Penstock
from penstock.broker.local import Broker
from penstock.errors import InvalidInput, InvalidState, StoreError
from penstock.model.message import MICROS_PER_SECOND, Leased, Moment, Nack, State
from penstock.model.store_types import Completion, Query
from penstock.rules.durations import parse_seconds
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
# Agents that run more often than this run whenever something is due, and not in between.
MIN_INTERVAL_S = 60.0
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

    def _due(self, agent: Agent) -> bool:
        return agent.every < MIN_INTERVAL_S or self.runs_at[agent] <= self.clock()

    async def _run(self, agents: list[Agent]) -> None:
        self.troubled = False
        for _ in range(MAX_RUNS):
            unfinished = [agent for agent in agents if await self._tick(agent)]
            if not await self._drain() and not unfinished:
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
        moments = [self.runs_at[agent] for agent in self.agents if agent.every >= MIN_INTERVAL_S]
        try:
            moments += await self._due_moments()
        except StoreError:
            self.troubled = True
        soon = now + MICROS_PER_SECOND
        return min(
            [moment if moment > now else soon for moment in moments] + [soon] * self.troubled
        )

    async def _due_moments(self) -> list[Moment]:
        looked, promoted = await self.store.look(1), await self.store.promote(1)
        ticks = [each.next_at for each in await self.store.schedules() if not each.paused]
        queues = await self.store.queues()
        claimed = Query(tuple(queue.id for queue in queues), State.CLAIMED, limit=1_000)
        leases = [record.lease_until for record in await self.store.find(claimed)]
        ends = [end + 1 for end in leases if end is not None]
        waits = [each for each in (promoted.next_at, looked.next_at) if each is not None]
        return ticks + ends + waits
