"""The loop that runs agents: the only place that sleeps."""

import asyncio
import random
import secrets
import string
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self, TypeAlias

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from penstock.errors import NotFound, StoreBusy, StoreError
from penstock.outage import Outages

Changed: TypeAlias = Callable[[str, str | None], None]
MAX_RETRY_WAIT_S = 30.0
# Agents that run so often have others waiting for them: lost messages, and what is due.
FREQUENT_S = 1.0
MAX_FREQUENT_RETRY_WAIT_S = 4.0
log: FilteringBoundLogger = structlog.get_logger()

ID_ALPHABET = string.ascii_lowercase + string.digits


def make_identity() -> str:
    """Unique per process start: a host name or a pid comes back. Short: every message keeps it."""
    return "".join(secrets.choice(ID_ALPHABET) for _ in range(7))


class Agent(Protocol):
    """Background work, safe on every node at once."""

    name: str
    every: float

    async def tick(self) -> float:
        """Does a bounded piece of work; says how long to wait. 0: there is more to do now."""


class AgentStatus(Struct, frozen=True):
    """How one agent is doing in this process. `error` is None if the last run went well."""

    name: str
    every: float
    runs: int
    ran_ago: float | None
    runs_in: float | None
    error: str | None


class AgentTurn:
    """One agent's place in the loop: when it ran, when it runs again, and what came of it."""

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

    async def run(self) -> float:
        """One run. Whatever goes wrong is logged, and the agent goes on after a growing wait."""
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
        # A shorter wait than usual is until a moment when something is due: keep to it.
        return add_jitter(wait) if wait >= self.agent.every else wait

    async def pause(self, wait: float) -> None:
        """Sleeps until the wait is over or the agent is nudged; a wait of 0 only lets others in."""
        self.runs_at = asyncio.get_running_loop().time() + wait
        if wait <= 0:
            await asyncio.sleep(0)
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
    """Runs every agent in a coroutine of its own, until `stop`.

    `changed` hears of an agent that begins to fail, with its error, and of one that is well again.
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
            for turn in self.turns:
                group.create_task(self._repeat(turn), name=turn.agent.name)

    async def _repeat(self, turn: AgentTurn) -> None:
        while not self.stopping:
            await turn.pause(await turn.run())
        turn.runs_at = None

    def stop(self) -> None:
        """Runs under way come to their end; no other begins."""
        self.stopping = True
        for turn in self.turns:
            turn.nudged.set()

    def nudge(self, name: str) -> None:
        """The agent's wait ends now."""
        turns = [turn for turn in self.turns if turn.agent.name == name]
        if not turns:
            raise NotFound(f"no agent named {name!r}")
        for turn in turns:
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


def compute_retry_wait(failures: int, every: float, error: Exception) -> float:
    """1, 2, 4 ... seconds, at most 30. An agent that runs every second comes back sooner, and at
    once after STORE_BUSY, for which it has waited already."""
    longest = MAX_RETRY_WAIT_S
    if every <= FREQUENT_S:
        longest = FREQUENT_S if isinstance(error, StoreBusy) else MAX_FREQUENT_RETRY_WAIT_S
    return min(2.0 ** min(failures - 1, 10), longest)


def add_jitter(wait: float) -> float:
    """Jitter, so that nodes started together do not stay together."""
    return wait * random.uniform(0.9, 1.0)
