"""The services of operators and administrators. Each is imported when it is first used."""

from functools import cached_property
from typing import TYPE_CHECKING

from penstock.broker.messages import Admin
from penstock.broker.queue_cache import QueueCache
from penstock.store import Store

if TYPE_CHECKING:
    from penstock.broker.activity.queries import ActivityLog
    from penstock.broker.alerts import Alerts
    from penstock.broker.anomalies import Anomalies
    from penstock.broker.broadcast.subscriptions import Broadcasts
    from penstock.broker.bulk.actions import Bulk
    from penstock.broker.filters import FilterCompleter, RecentHistory
    from penstock.broker.metrics.queries import MetricsReader
    from penstock.broker.routing.admin import RuleAdmin
    from penstock.broker.schemas.registry import SchemaRegistry
    from penstock.broker.scopes import ScopeAdmin
    from penstock.broker.topology.apply import Topology
    from penstock.broker.waiting.inbox import Inbox
    from penstock.broker.waiting.workflows import Workflows


class BrokerServices:
    """Most processes publish and consume only, and should start fast."""

    store: Store
    directory: QueueCache
    admin: Admin
    tenant: str

    @cached_property
    def metrics(self) -> "MetricsReader":
        from penstock.broker.metrics.queries import MetricsReader

        return MetricsReader(self.store, self.directory, self.tenant)

    @cached_property
    def anomalies(self) -> "Anomalies":
        from penstock.broker.anomalies import Anomalies

        return Anomalies(self.store, self.directory, self.tenant)

    @cached_property
    def alerts(self) -> "Alerts":
        from penstock.broker.alerts import Alerts

        return Alerts(self.store, self.tenant)

    @cached_property
    def activity(self) -> "ActivityLog":
        """Activity: history and audit log in one list."""
        from penstock.broker.activity.queries import ActivityLog

        return ActivityLog(self.store, self.admin)

    @cached_property
    def recent_history(self) -> "RecentHistory":
        from penstock.broker.filters import RecentHistory

        return RecentHistory(self.store)

    @cached_property
    def filters(self) -> "FilterCompleter":
        from penstock.broker.filters import FilterCompleter

        return FilterCompleter(self.admin, self.recent_history)

    @cached_property
    def schemas(self) -> "SchemaRegistry":
        from penstock.broker.schemas.registry import SchemaRegistry

        return SchemaRegistry(self.admin)

    @cached_property
    def scopes(self) -> "ScopeAdmin":
        from penstock.broker.scopes import ScopeAdmin

        return ScopeAdmin(self.admin)

    @cached_property
    def bulk(self) -> "Bulk":
        from penstock.broker.bulk.actions import Bulk

        return Bulk(self.store, self.directory, self.tenant)

    @cached_property
    def inbox(self) -> "Inbox":
        """Human steps."""
        from penstock.broker.waiting.inbox import Inbox

        return Inbox(self.store, self.directory, self.tenant)

    @cached_property
    def workflows(self) -> "Workflows":
        from penstock.broker.waiting.workflows import Workflows

        return Workflows(self.store, self.directory, self.tenant)

    @cached_property
    def broadcasts(self) -> "Broadcasts":
        from penstock.broker.broadcast.subscriptions import Broadcasts

        return Broadcasts(self.admin)

    @cached_property
    def rules(self) -> "RuleAdmin":
        from penstock.broker.routing.admin import RuleAdmin

        return RuleAdmin(self.store, self.directory, self.tenant)

    @cached_property
    def topology(self) -> "Topology":
        """Topologies: objects declared in files."""
        from penstock.broker.topology.apply import Topology, allow_grants

        return Topology(self.admin, self.rules, self.schemas, allow_grants)
