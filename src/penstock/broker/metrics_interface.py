"""What apps, servers and commands ask about metrics, anomalies and alerts."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.broker.anomalies import AnomalyQuery
    from penstock.model.alerts import Alert, AlertStatus
    from penstock.model.anomalies import AnomalyReport
    from penstock.model.message import Moment
    from penstock.model.metrics import ConsumerMetrics, QueueMetrics


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
