"""The broker interface of operators: activity, metrics, anomalies, alerts and bulk actions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.model.message import NEVER

if TYPE_CHECKING:
    from penstock.broker.anomalies import AnomalyQuery
    from penstock.model.activity import ActivityEntry, ActivityPage, Trace
    from penstock.model.alerts import Alert, AlertStatus
    from penstock.model.anomalies import AnomalyReport
    from penstock.model.bulk import BulkAction, BulkVerb
    from penstock.model.changes import Horizon
    from penstock.model.message import Moment
    from penstock.model.metrics import ConsumerMetrics, QueueMetrics
    from penstock.rules.filter_completion import FilterSuggestion


class ActivityInterface(Protocol):
    """History of messages, and the audit log."""

    async def find(
        self,
        filter: str = "",
        *,
        kinds: Sequence[str] = (),
        since: Moment = 0,
        until: Moment = NEVER,
        cursor: str | None = None,
        limit: int = 50,
    ) -> ActivityPage: ...

    def follow(
        self, filter: str = "", *, kinds: Sequence[str] = ()
    ) -> AsyncGenerator[ActivityEntry]: ...

    async def trace(self, correlation_id: str) -> Trace: ...


class FiltersInterface(Protocol):
    """Help with filters."""

    async def complete(self, text: str, position: int | None = None) -> FilterSuggestion: ...


class MetricsInterface(Protocol):
    """Metrics that the historian keeps."""

    async def queue(
        self,
        name: str,
        *,
        type: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        step: float = 60,
        scope: str = "default",
    ) -> QueueMetrics: ...

    async def consumers(
        self,
        *,
        queue: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        scope: str = "default",
    ) -> ConsumerMetrics: ...


class AnomaliesInterface(Protocol):
    async def list(
        self, query: AnomalyQuery | None = None, *, scope: str = "default"
    ) -> AnomalyReport: ...


class AlertsInterface(Protocol):
    """Webhooks about anomalies."""

    async def add(
        self,
        name: str,
        url: str,
        *,
        kinds: Collection[str] = (),
        severities: Collection[str] = (),
        queues: Collection[str] = (),
        min_duration: float = 0.0,
        cooldown: float = 300.0,
        scope: str = "default",
    ) -> Alert: ...

    async def list(self, *, scope: str = "default") -> list[AlertStatus]: ...

    async def get(self, name: str, *, scope: str = "default") -> AlertStatus: ...

    async def delete(self, name: str, *, scope: str = "default") -> None: ...

    async def test(self, name: str, *, scope: str = "default") -> None: ...


class BulkInterface(Protocol):
    """Bulk actions."""

    async def start(
        self,
        verb: BulkVerb | str,
        *,
        filter: str | None = None,
        ids: Sequence[int] | None = None,
        queue: str | None = None,
        to_scope: str | None = None,
        priority: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        name: str | None = None,
        as_of: Horizon | None = None,
        scope: str = "default",
    ) -> BulkAction:
        """Starts an operation on all messages that match a filter, or that have these ids."""

    async def get(self, id: int) -> BulkAction: ...

    async def list_actions(self, *, active: bool = False, limit: int = 50) -> list[BulkAction]: ...

    async def pause(self, id: int) -> BulkAction: ...

    async def resume(self, id: int) -> BulkAction: ...

    async def abort(self, id: int) -> BulkAction: ...
