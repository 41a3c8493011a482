"""The background work that keeps a store in order, the same on every node."""

from penstock.agents.aging import PriorityAgingWorker
from penstock.agents.archiver import MessageArchiver
from penstock.agents.artifacts import ArtifactSweeper
from penstock.agents.dead_letters import DeadLetterMonitor
from penstock.agents.expiry import ExpiryEnforcer
from penstock.agents.scheduler import Scheduler
from penstock.agents.visibility import VisibilityTimeoutEnforcer
from penstock.artifacts.verbs import Room
from penstock.directory import Directory
from penstock.runner import Agent
from penstock.store import Store


def all_agents(
    store: Store, directory: Directory, by: str, room: Room | None = None
) -> list[Agent]:
    """One of each, for the process known as `by`; files are swept where they have a room."""
    sweepers = [] if room is None else [ArtifactSweeper(store, room, by)]
    return [
        *sweepers,
        VisibilityTimeoutEnforcer(store, directory, by),
        Scheduler(store, directory, by),
        ExpiryEnforcer(store, directory, by),
        PriorityAgingWorker(store, directory, by),
        DeadLetterMonitor(store, directory, by),
        MessageArchiver(store, directory, by),
    ]
