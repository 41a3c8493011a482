"""The services of a broker beside publish and claim. Each is imported when it is first used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.model.queue import HUMAN

if TYPE_CHECKING:
    from penstock.artifacts.service import ArtifactService
    from penstock.broker.activity.queries import ActivityLog
    from penstock.broker.alerts import Alerts
    from penstock.broker.anomalies import Anomalies
    from penstock.broker.artifacts import Artifacts
    from penstock.broker.broadcast.subscriptions import Broadcasts
    from penstock.broker.bulk.actions import Bulk
    from penstock.broker.filters import FilterCompleter, RecentHistory
    from penstock.broker.messages import Admin
    from penstock.broker.metrics.queries import MetricsReader
    from penstock.broker.publish import Publisher
    from penstock.broker.queue_cache import QueueCache
    from penstock.broker.routing.admin import RuleAdmin
    from penstock.broker.schemas.registry import SchemaRegistry
    from penstock.broker.scopes import ScopeAdmin
    from penstock.broker.topology.apply import Topology
    from penstock.broker.waiting.dependencies import DependentDraft
    from penstock.broker.waiting.inbox import Inbox
    from penstock.broker.waiting.waits import Waits
    from penstock.broker.waiting.workflows import Workflows
    from penstock.model.message import Draft
    from penstock.model.store_types import Entry, Published
    from penstock.store import Store


class BrokerServices:
    """Most processes publish and consume only, and should start fast."""

    store: Store
    directory: QueueCache
    admin: Admin
    publisher: Publisher
    tenant: str
    artifact_service: ArtifactService | None

    @cached_property
    def artifacts(self) -> Artifacts:
        from penstock.broker.artifacts import Artifacts

        return Artifacts(self.store, self.admin, self.tenant, self.artifact_service)

    @cached_property
    def waits(self) -> Waits:
        """Durable steps, suspension and signals."""
        from penstock.broker.waiting.waits import Waits

        return Waits(self.store, self.directory, self.tenant, self.admin, self.admit_child)

    async def admit_child(self, draft: Draft, *, scope: str = "default") -> Entry:
        """Admits a message that a handler publishes and waits for: a task, or a human step."""
        if draft.queue == HUMAN:
            return await self.inbox.admit_step(draft, scope=scope)
        return await self.publisher.admit(draft, scope=scope)

    async def publish_dependents(
        self, given: Sequence[DependentDraft], *, scope: str = "default"
    ) -> list[Published]:
        """Publishes messages that wait for others by name: all or none."""
        from penstock.broker.waiting.dependencies import publish_dependents

        return await publish_dependents(self.publisher, given, scope=scope)

    @cached_property
    def metrics(self) -> MetricsReader:
        from penstock.broker.metrics.queries import MetricsReader

        return MetricsReader(self.store, self.directory, self.tenant)

    @cached_property
    def anomalies(self) -> Anomalies:
        from penstock.broker.anomalies import Anomalies

        return Anomalies(self.store, self.directory, self.tenant)

    @cached_property
    def alerts(self) -> Alerts:
        from penstock.broker.alerts import Alerts

        return Alerts(self.store, self.tenant)

    @cached_property
    def activity(self) -> ActivityLog:
        """Activity: history and audit log in one list."""
        from penstock.broker.activity.queries import ActivityLog

        return ActivityLog(self.store, self.admin)

    @cached_property
    def recent_history(self) -> RecentHistory:
        from penstock.broker.filters import RecentHistory

        return RecentHistory(self.store)

    @cached_property
    def filters(self) -> FilterCompleter:
        from penstock.broker.filters import FilterCompleter

        return FilterCompleter(self.admin, self.recent_history)

    @cached_property
    def schemas(self) -> SchemaRegistry:
        from penstock.broker.schemas.registry import SchemaRegistry

        return SchemaRegistry(self.admin)

    @cached_property
    def scopes(self) -> ScopeAdmin:
        from penstock.broker.scopes import ScopeAdmin

        return ScopeAdmin(self.admin)

    @cached_property
    def bulk(self) -> Bulk:
        from penstock.broker.bulk.actions import Bulk

        return Bulk(self.store, self.directory, self.tenant)

    @cached_property
    def inbox(self) -> Inbox:
        """Human steps."""
        from penstock.broker.waiting.inbox import Inbox

        return Inbox(self.store, self.directory, self.tenant)

    @cached_property
    def workflows(self) -> Workflows:
        from penstock.broker.waiting.workflows import Workflows

        return Workflows(self.store, self.directory, self.tenant)

    @cached_property
    def broadcasts(self) -> Broadcasts:
        from penstock.broker.broadcast.subscriptions import Broadcasts

        return Broadcasts(self.admin)

    @cached_property
    def rules(self) -> RuleAdmin:
        from penstock.broker.routing.admin import RuleAdmin

        return RuleAdmin(self.store, self.directory, self.tenant)

    @cached_property
    def topology(self) -> Topology:
        """Topologies: objects declared in files."""
        from penstock.broker.topology.apply import Topology, allow_grants

        return Topology(self.admin, self.rules, self.schemas, allow_grants)
