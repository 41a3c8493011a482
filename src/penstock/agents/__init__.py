"""Background agents: reclaim, schedule, expire, age, prune, monitor, seal. Safe on every node."""

from penstock.agents.ager import PriorityAger
from penstock.agents.anomaly_detector import AnomalyDetector
from penstock.agents.artifact_pruner import ArtifactPruner
from penstock.agents.audit_sealer import AuditSealer
from penstock.agents.broadcast_follower import BroadcastFollower
from penstock.agents.bulk_runner import BulkRunner
from penstock.agents.dead_letter_monitor import DeadLetterMonitor
from penstock.agents.expirer import Expirer
from penstock.agents.historian import Historian
from penstock.agents.human_reminder import HumanReminder
from penstock.agents.pruner import Pruner
from penstock.agents.reclaimer import Reclaimer
from penstock.agents.rule_follower import RuleFollower
from penstock.agents.scheduler import Scheduler
from penstock.agents.workflow_follower import WorkflowFollower
from penstock.artifacts.service import ArtifactService
from penstock.broker.queue_cache import QueueCache
from penstock.runner import Agent
from penstock.store import Store


def make_agents(
    store: Store,
    by: str,
    *,
    directory: QueueCache | None = None,
    artifact_service: ArtifactService | None = None,
) -> list[Agent]:
    """Makes the agents of the process `by`. The artifact pruner needs an artifact storage."""
    directory = directory or QueueCache(store)
    sweepers = [] if artifact_service is None else [ArtifactPruner(store, artifact_service, by)]
    return [
        *sweepers,
        Reclaimer(store, directory, by),
        Scheduler(store, directory, by),
        Expirer(store, directory, by),
        PriorityAger(store, directory, by),
        DeadLetterMonitor(store, directory, by),
        Pruner(store, directory, by),
        AuditSealer(store, directory, by),
        BulkRunner(store, directory, by),
        HumanReminder(store, directory, by),
        WorkflowFollower(store, directory, by),
        Historian(store, directory, by),
        AnomalyDetector(store, directory, by),
        RuleFollower(store, directory, by),
        BroadcastFollower(store, directory, by),
    ]
