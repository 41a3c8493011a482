"""The background work that keeps a store in order, the same on every node."""

from penstock.agents.aging import PriorityAger
from penstock.agents.archiver import Pruner
from penstock.agents.artifacts import ArtifactPruner
from penstock.agents.dead_letters import DeadLetterMonitor
from penstock.agents.expiry import Expirer
from penstock.agents.scheduler import Scheduler
from penstock.agents.visibility import Reclaimer
from penstock.artifacts.verbs import ArtifactRoom
from penstock.directory import QueueCache
from penstock.runner import Agent
from penstock.store import Store


def make_agents(
    store: Store, directory: QueueCache, by: str, room: ArtifactRoom | None = None
) -> list[Agent]:
    """One of each, for the process known as `by`; files are swept where they have a room."""
    sweepers = [] if room is None else [ArtifactPruner(store, room, by)]
    return [
        *sweepers,
        Reclaimer(store, directory, by),
        Scheduler(store, directory, by),
        Expirer(store, directory, by),
        PriorityAger(store, directory, by),
        DeadLetterMonitor(store, directory, by),
        Pruner(store, directory, by),
    ]
