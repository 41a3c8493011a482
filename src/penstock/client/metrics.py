"""Metrics, anomalies and alerts over HTTP."""

from collections.abc import Collection
from typing import Any
from urllib.parse import quote

from penstock.broker.anomalies import AnomalyQuery
from penstock.client.transport import RemoteGroup
from penstock.model.alerts import Alert, AlertState, AlertStatus, PendingNotice
from penstock.model.anomalies import AnomalyReport
from penstock.model.message import Moment
from penstock.model.metrics import ConsumerMetrics, QueueMetrics
from penstock.model.structs import copy_fields
from penstock.wire.fields import to_datetime, to_moment, to_optional_moment
from penstock.wire.metrics import (
    AlertsView,
    AlertView,
    AnomaliesView,
    ConsumerMetricsView,
    QueueMetricsView,
    read_view,
)


class RemoteMetrics(RemoteGroup):
    async def queue(
        self,
        name: str,
        *,
        type: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        step: float = 60,
        scope: str = "default",
    ) -> QueueMetrics:
        query = {"type": type, "step": f"{step:g}", "scope": scope}
        view = await self.send(
            "GET",
            f"/v1/metrics/queues/{quote(name, safe='')}",
            gives=QueueMetricsView,
            query=query | make_times(since, until),
        )
        return read_view(view, QueueMetrics)

    async def consumers(
        self,
        *,
        queue: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        scope: str = "default",
    ) -> ConsumerMetrics:
        query = {"queue": queue, "scope": scope} | make_times(since, until)
        view = await self.send(
            "GET", "/v1/metrics/consumers", gives=ConsumerMetricsView, query=query
        )
        return read_view(view, ConsumerMetrics)


def make_times(since: Moment | None, until: Moment | None) -> dict[str, Any]:
    return {
        name: None if moment is None else to_datetime(moment).isoformat()
        for name, moment in (("since", since), ("until", until))
    }


class RemoteAnomalies(RemoteGroup):
    async def list(
        self, query: AnomalyQuery | None = None, *, scope: str = "default"
    ) -> AnomalyReport:
        asked = query or AnomalyQuery()
        given = {
            "kind": list(asked.kinds),
            "severity": list(asked.severities),
            "queue": list(asked.queues),
            "state": asked.state,
            "limit": asked.limit,
            "scope": scope,
        }
        view = await self.send(
            "GET",
            "/v1/anomalies",
            gives=AnomaliesView,
            query=given | make_times(asked.since, asked.until),
        )
        return read_view(view, AnomalyReport)


class RemoteAlerts(RemoteGroup):
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
    ) -> Alert:
        sent = {
            "name": name,
            "url": url,
            "kinds": list(kinds),
            "severities": list(severities),
            "queues": list(queues),
            "min_duration": min_duration,
            "cooldown": cooldown,
        }
        view = await self.send("POST", "/v1/alerts", sent, gives=AlertView, scope=scope)
        return make_alert_status(view).alert

    async def list(self, *, scope: str = "default") -> list[AlertStatus]:
        view = await self.send("GET", "/v1/alerts", gives=AlertsView, scope=scope)
        return [make_alert_status(each) for each in view.alerts]

    async def get(self, name: str, *, scope: str = "default") -> AlertStatus:
        path = alert_path(name)
        return make_alert_status(await self.send("GET", path, gives=AlertView, scope=scope))

    async def delete(self, name: str, *, scope: str = "default") -> None:
        await self.transport.exchange("DELETE", alert_path(name), scope=scope)

    async def test(self, name: str, *, scope: str = "default") -> None:
        await self.transport.exchange("POST", f"{alert_path(name)}/test", scope=scope)


def alert_path(name: str) -> str:
    return f"/v1/alerts/{quote(name, safe='')}"


def make_alert_status(view: AlertView) -> AlertStatus:
    """The bodies of notices stay with the server."""
    alert = copy_fields(Alert, view, tenant="default", created_at=to_moment(view.created_at))
    pending = None
    if view.due_at is not None:
        due_at = to_moment(view.due_at)
        pending = PendingNotice("", "alert.firing", "", view.attempts, due_at, view.error)
    return AlertStatus(
        alert,
        AlertState(
            pending=pending,
            sent=view.sent,
            last_sent_at=to_optional_moment(view.last_sent_at),
            last_error=view.error,
            reported=dict.fromkeys(view.subjects, 0),
        ),
    )
