"""Runs background agents: schedules their ticks, and backs off on failures."""

import asyncio
import math
import random
import secrets
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeAlias

import msgspec
import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from penstock.errors import NotFound, StoreBusy, StoreError
from penstock.outage import Outages

Changed: TypeAlias = Callable[[str, str | None], None]
MAX_RETRY_WAIT_S = 30.0
# Agents that run this often are urgent (reclaimer, scheduler) and retry sooner.
FREQUENT_S = 1.0
MAX_FREQUENT_RETRY_WAIT_S = 4.0
# The first ticks of all agents are spread over this time, or over their interval if shorter.
FIRST_TICKS_WITHIN_S = 1.0
# The wait of an agent that is not needed. `wake_dormant` ends it.
UNTIL_WOKEN = math.inf
log: FilteringBoundLogger = structlog.get_logger()

ID_ALPHABET = string.ascii_lowercase + string.digits


def make_identity() -> str:
    """Returns a random id of this process. It is short, because every message stores it."""
    return "".join(secrets.choice(ID_ALPHABET) for _ in range(7))


class Agent(Protocol):
    """Background work that is safe to run on every node at once."""

    name: str
    every: float

    async def tick(self) -> float:
        """Does a bounded piece of work. Returns the seconds to wait; 0 if there is more to do.

        UNTIL_WOKEN if there is nothing to do until `Runner.wake_dormant`.
        """


class AgentStatus(Struct, frozen=True):
    """The status of an agent in this process. `error` is None if the last run succeeded."""

    name: str
    every: float
    runs: int
    ran_ago: float | None
    runs_in: float | None
    error: str | None


class AgentTurn:
    """Runs one agent: tracks its runs, failures and waits."""

    def __init__(self, agent: Agent, outages: Outages, changed: Changed | None = None) -> None:
        self.agent = agent
        self.outages = outages
        self.changed = changed
        self.runs = 0
        self.failures = 0
        self.error: str | None = None
        self.ran_at: float | None = None
        self.runs_at: float | None = None
        self.nudged = asyncio.Event()
        self.dormant = False

    async def run(self) -> float:
        """Runs the agent once. Errors are logged, and retried with a growing wait."""
        self.runs += 1
        self.ran_at = asyncio.get_running_loop().time()
        try:
            wait = await self.agent.tick()
        except Exception as error:
            self.failures += 1
            self.error = f"{type(error).__name__}: {error}"
            if self.failures == 1 and self.changed is not None:
                self.changed(self.agent.name, self.error)
            wait = compute_retry_wait(self.failures, self.agent.every, error)
            if isinstance(error, StoreError):
                self.outages.report_failure(self.agent.name, error)
            else:
                log.error(
                    "agent_failed",
                    agent=self.agent.name, error=self.error, wait=wait, exc_info=error,
                )  # fmt: skip
            return add_jitter(wait)
        if self.failures:
            self.outages.report_success(self.agent.name)
            if self.changed is not None:
                self.changed(self.agent.name, None)
        self.failures = 0
        self.error = None
        # A shorter wait ends when something is due, so it gets no jitter.
        return add_jitter(wait) if wait >= self.agent.every else wait

    async def pause(self, wait: float) -> None:
        """Sleeps until the wait is over or the agent is nudged. A wait of 0 only yields."""
        self.dormant = wait == UNTIL_WOKEN
        self.runs_at = None if self.dormant else asyncio.get_running_loop().time() + wait
        if wait <= 0:
            await asyncio.sleep(0)
        elif self.dormant:
            await self.nudged.wait()
        else:
            try:
                async with asyncio.timeout(wait):
                    await self.nudged.wait()
            except TimeoutError:
                pass
        self.nudged.clear()

    def status(self, now: float) -> AgentStatus:
        ago = None if self.ran_at is None else now - self.ran_at
        left = None if self.runs_at is None else max(0.0, self.runs_at - now)
        return AgentStatus(self.agent.name, self.agent.every, self.runs, ago, left, self.error)


class Runner:
    """Runs every agent in its own task until `stop`.

    `changed` is called with the error when an agent begins to fail, and with None on recovery.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        changed: Changed | None = None,
        outages: Outages | None = None,
    ) -> None:
        shared = outages or Outages()
        self.turns = [AgentTurn(agent, shared, changed) for agent in agents]
        self.stopping = False
        self.running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for turn, wait in zip(self.turns, spread_first_ticks(self.turns), strict=True):
                group.create_task(self._repeat(turn, wait), name=turn.agent.name)

    async def _repeat(self, turn: AgentTurn, first_wait: float) -> None:
        if first_wait:
            await turn.pause(first_wait)
        while not self.stopping:
            await turn.pause(await turn.run())
        turn.runs_at = None

    def stop(self) -> None:
        """Stops after the current runs."""
        self.stopping = True
        for turn in self.turns:
            turn.nudged.set()

    def nudge(self, name: str) -> None:
        """Makes the agent run now."""
        turns = [turn for turn in self.turns if turn.agent.name == name]
        if not turns:
            raise NotFound(f"no agent named {name!r}")
        for turn in turns:
            turn.nudged.set()

    def wake_dormant(self) -> None:
        """Makes the agents run that returned UNTIL_WOKEN."""
        for turn in self.turns:
            if turn.dormant:
                turn.nudged.set()

    def statuses(self) -> list[AgentStatus]:
        now = asyncio.get_running_loop().time()
        return [turn.status(now) for turn in self.turns]

    async def __aenter__(self) -> Self:
        self.running = asyncio.create_task(self.run(), name="runner")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if self.running is not None:
            await self.running


def spread_first_ticks(turns: Sequence[AgentTurn]) -> list[float]:
    """Returns how long each agent waits before its first tick; the most frequent ticks at once.

    Together, their first ticks would open and warm as many connections as there are agents while
    the first messages arrive.
    """
    by_interval = sorted(range(len(turns)), key=lambda place: turns[place].agent.every)
    waits = [0.0] * len(turns)
    for rank, place in enumerate(by_interval):
        waits[place] = rank / len(turns) * min(turns[place].agent.every, FIRST_TICKS_WITHIN_S)
    return waits


def compute_retry_wait(failures: int, every: float, error: Exception) -> float:
    """Returns 1, 2, 4 ... up to 30 seconds. Agents that run every second retry sooner, and soonest
    after STORE_BUSY, which has already waited."""
    longest = MAX_RETRY_WAIT_S
    if every <= FREQUENT_S:
        longest = FREQUENT_S if isinstance(error, StoreBusy) else MAX_FREQUENT_RETRY_WAIT_S
    return min(2.0 ** min(failures - 1, 10), longest)


def add_jitter(wait: float) -> float:
    """Adds jitter, so that nodes that started together drift apart."""
    return wait * random.uniform(0.9, 1.0)


def report(counts: Mapping[str, int]) -> str:
    return msgspec.json.encode(counts).decode()


def read_report(text: str) -> dict[str, int]:
    return msgspec.json.decode(text, type=dict[str, int])
