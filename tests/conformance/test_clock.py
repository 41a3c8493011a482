"""A store clock that is set back stops no agent: another node goes on at once."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.agents import make_agents
from penstock.artifacts.local import LocalArtifactStorage
from penstock.artifacts.rules import ArtifactLimits
from penstock.artifacts.service import ArtifactService
from penstock.model.documents import AuditEntry
from penstock.runner import Agent
from tests.artifacts.scenes import keep
from tests.conformance.stage import DAY, HOUR, Stage

pytestmark = pytest.mark.anyio
VISIBILITY = "visibility_timeout_enforcer"
ROUNDS = 5


async def lose_a_lease(stage: Stage) -> None:
    await stage.publish()
    await stage.take(lease=2.0)


async def publish_short_lived(stage: Stage) -> None:
    await stage.publish(ttl=1.0)


async def publish_low_and_high(stage: Stage) -> None:
    await stage.admin.set_queue("default", aging=True)
    for priority in (0, 9):
        await stage.publish(priority=priority)


async def reject_one(stage: Stage) -> None:
    await stage.dead()


async def complete_one(stage: Stage) -> None:
    await stage.admin.set_queue("default", retention=60.0)
    await stage.completed()


async def record_an_act(stage: Stage) -> None:
    await stage.store.record([AuditEntry(subject="ada", tenant="default", verb="v", target="t")])


# What gives each agent work, and the seconds between its runs.
SCENES: dict[str, tuple[Callable[[Stage], Awaitable[None]], float]] = {
    VISIBILITY: (lose_a_lease, 1.0),
    "expiry_enforcer": (publish_short_lived, 60.0),
    "priority_aging_worker": (publish_low_and_high, 300.0),
    "dead_letter_monitor": (reject_one, 60.0),
    "message_archiver": (complete_one, 300.0),
    "artifact_pruner": (complete_one, 300.0),
    "audit_sealer": (record_an_act, 2.0),
}


@pytest.fixture
def service(tmp_path: Path) -> ArtifactService:
    return ArtifactService(
        LocalArtifactStorage(tmp_path / "files", "store"), ArtifactLimits(100, 3, 150)
    )


async def run_agent(stage: Stage, service: ArtifactService, name: str, by: str) -> str | None:
    """Gives the agent work and runs it until it must have been done; who did it last."""
    make_work, interval = SCENES[name]
    await make_work(stage)
    keep(service.storage)
    agents = make_agents(stage.store, by, artifact_service=service)
    await repeat(stage, next(agent for agent in agents if agent.name == name), interval)
    return {run.name: run.by for run in await stage.store.agent_runs()}.get(name)


async def repeat(stage: Stage, agent: Agent, interval: float) -> None:
    for _ in range(ROUNDS):
        await agent.tick()
        await stage.travel(interval)


@pytest.mark.parametrize("name", SCENES)
async def test_another_node_takes_over_when_the_clock_was_set_back(
    stage: Stage, name: str, service: ArtifactService
) -> None:
    assert await run_agent(stage, service, name, "first") == "first"
    await stage.travel(-DAY)
    assert await run_agent(stage, service, name, "second") == "second"


async def test_a_message_leased_after_the_clock_was_set_back_comes_back(
    stage: Stage, service: ArtifactService
) -> None:
    await run_agent(stage, service, VISIBILITY, "first")
    await stage.drain()
    await stage.travel(-HOUR)
    await run_agent(stage, service, VISIBILITY, "second")
    assert await stage.places() == {"ready": 1, "ended": 1}


async def test_a_tick_that_seems_a_moment_ahead_is_still_its_owners(stage: Stage) -> None:
    """A node may read the clock, and then wait while another one claims the tick."""
    assert await stage.store.claim_tick("archiver", 60, "first")
    await stage.travel(-1.0)
    assert not await stage.store.claim_tick("archiver", 60, "second")
