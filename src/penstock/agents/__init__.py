"""Background agents: reclaim, schedule, expire, age, prune, monitor, seal. Safe on every node."""

from penstock.agents.ager import PriorityAger
from penstock.agents.artifact_pruner import ArtifactPruner
from penstock.agents.audit_sealer import AuditSealer
from penstock.agents.dead_letter_monitor import DeadLetterMonitor
from penstock.agents.expirer import Expirer
from penstock.agents.pruner import Pruner
from penstock.agents.reclaimer import Reclaimer
from penstock.agents.scheduler import Scheduler
from penstock.artifacts.room import ArtifactRoom
from penstock.broker.queue_cache import QueueCache
from penstock.runner import Agent
from penstock.store import Store


def make_agents(
    store: Store,
    by: str,
    *,
    directory: QueueCache | None = None,
    room: ArtifactRoom | None = None,
) -> list[Agent]:
    """Makes the agents of the process `by`. The artifact pruner needs an artifact storage."""
    directory = directory or QueueCache(store)
    sweepers = [] if room is None else [ArtifactPruner(store, room, by)]
    return [
        *sweepers,
        Reclaimer(store, directory, by),
        Scheduler(store, directory, by),
        Expirer(store, directory, by),
        PriorityAger(store, directory, by),
        DeadLetterMonitor(store, directory, by),
        Pruner(store, directory, by),
        AuditSealer(store, directory, by),
    ]
