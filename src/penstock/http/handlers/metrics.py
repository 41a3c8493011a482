"""Routes for metrics, consumer statistics, anomalies, alerts and results of the pipeline."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw

from penstock.broker.alerts import Alerts
from penstock.broker.anomalies import Anomalies, AnomalyQuery
from penstock.broker.metrics.queries import MetricsReader
from penstock.errors import NotFound
from penstock.http.auth.principal import RightScope
from penstock.http.context import RequestContext
from penstock.http.handlers.rules import get_rules
from penstock.http.lake_jobs import LakeJob
from penstock.http.operations import OperationTable
from penstock.model.anomalies import AnomalyState, Severity
from penstock.model.message import Moment
from penstock.model.routing import Rule
from penstock.model.structs import copy_fields
from penstock.rules.access import Right
from penstock.rules.durations import parse_seconds
from penstock.rules.filter_parser import parse_moment
from penstock.rules.rule_checks import check_rule
from penstock.wire.fields import Cursor, Name, PageLimit, Word, to_datetime, to_optional_datetime
from penstock.wire.metrics import (
    AlertName,
    AlertsView,
    AlertView,
    AnomaliesView,
    ConsumerMetricsView,
    LakeJobView,
    LakeView,
    NewAlert,
    NewBacktest,
    PipelineResults,
    QueueMetricsView,
    Words,
    make_alert_view,
    make_anomalies_view,
    make_consumers_view,
    make_queue_metrics_view,
)
from penstock.wire.rules import make_new_rule, make_rule

metrics = OperationTable("metrics")
alerts = OperationTable("alerts")
WrittenTime = Annotated[
    str, Meta(max_length=40, description="A time: 2026-11-16T10:00Z, today or -2h.")
]
WrittenDuration = Annotated[str, Meta(max_length=20, description="A duration: 1m, 15m or 1h.")]
ResultKind = Literal["anomaly", "metrics", "backlog", "consumers", "triage"]
# Documents of the pipeline have names that begin like this.
LAKE = "lake/"


@metrics.add("GET", "/v1/metrics/queues/{queue}", "Get metrics of a queue", QueueMetricsView)
async def get_queue_metrics(
    call: RequestContext,
    queue: Name,
    type: Word | None = None,
    since: WrittenTime | None = None,
    until: WrittenTime | None = None,
    step: WrittenDuration = "1m",
) -> QueueMetricsView:
    """Returns points of a range, by default the last hour. Minutes are kept for 48 hours, hours for
    90 days. `live` is a sample of the queue now."""
    call.check(Right.READ, queue)
    reader = read_metrics(call)
    first, last = await read_times(call, since, until)
    found = await reader.queue(
        queue, type=type, since=first, until=last, step=parse_seconds(step), scope=call.scope
    )
    return make_queue_metrics_view(found)


@metrics.add("GET", "/v1/metrics/consumers", "Get statistics of consumers", ConsumerMetricsView)
async def get_consumer_metrics(
    call: RequestContext,
    queue: Name | None = None,
    since: WrittenTime | None = None,
    until: WrittenTime | None = None,
) -> ConsumerMetricsView:
    """Adds up whole hours, by default the last one. Consumers are kept for 48 hours."""
    if queue is not None:
        call.check(Right.READ, queue)
    reader = read_metrics(call)
    first, last = await read_times(call, since, until)
    found = await reader.consumers(queue=queue, since=first, until=last, scope=call.scope)
    return make_consumers_view(found)


@metrics.add("GET", "/v1/anomalies", "List anomalies", AnomaliesView)
async def list_anomalies(
    call: RequestContext,
    kind: Words = (),
    severity: Annotated[tuple[Severity, ...], Meta(max_length=3)] = (),
    queue: Words = (),
    state: AnomalyState | None = None,
    since: WrittenTime | None = None,
    until: WrittenTime | None = None,
    limit: PageLimit = 100,
) -> AnomaliesView:
    """Lists the newest first, by default of the last day. `queue` may be a glob. An anomaly is open
    until nothing like it has happened for ten minutes."""
    reader = Anomalies(call.service.store, call.service.directory, call.caller.tenant, call.allows)
    first, last = await read_times(call, since, until)
    query = AnomalyQuery(
        since=first,
        until=last,
        kinds=kind,
        severities=severity,
        queues=queue,
        state=state,
        limit=limit,
    )
    return make_anomalies_view(await reader.list(query, scope=call.scope))


def read_metrics(call: RequestContext) -> MetricsReader:
    service = call.service
    return MetricsReader(service.store, service.directory, call.caller.tenant, call.allows)


async def read_times(
    call: RequestContext, since: str | None, until: str | None
) -> tuple[Moment | None, Moment | None]:
    if since is None and until is None:
        return None, None
    now = await call.broker.now()
    first = None if since is None else parse_moment(since, now)
    return first, None if until is None else parse_moment(until, now)


@metrics.add(
    "GET", "/v1/pipeline/{kind}", "Get pipeline results", PipelineResults,
    extent=RightScope.STORE, scoped=False,
)  # fmt: skip
async def list_pipeline_results(
    call: RequestContext, kind: ResultKind, limit: PageLimit = 100, cursor: Cursor | None = None
) -> PipelineResults:
    """Results of the last seven days that `penstock pipeline run` wrote to the store."""
    tokens, sealed_by = call.service.tokens, (call.caller.tenant, kind)
    after = LAKE if cursor is None else tokens.unseal_name(cursor, sealed_by)
    page = await call.service.store.documents(kind, after, limit)
    found = [each for each in page if each.name.startswith(LAKE)]
    more = len(found) == limit
    last = tokens.seal_name(found[-1].name, sealed_by) if more else None
    return PipelineResults({each.name.removeprefix(LAKE): Raw(each.body) for each in found}, last)


@metrics.add("GET", "/v1/lake", "List pipeline jobs", LakeView, extent=RightScope.STORE,
             scoped=False)  # fmt: skip
async def get_lake(call: RequestContext) -> LakeView:
    """Says whether this server can run the pipeline, and shows the last jobs of this process."""
    jobs = call.service.lake_jobs
    reason = jobs.explain_missing()
    return LakeView(not reason, reason, [make_lake_job_view(job) for job in jobs.jobs.values()])


@metrics.add("POST", "/v1/lake/run", "Run the pipeline", LakeJobView, status=202,
             right=Right.MANAGE, extent=RightScope.STORE, scoped=False)  # fmt: skip
async def run_pipeline(call: RequestContext) -> LakeJobView:
    """Starts `penstock pipeline run` on this server, unless it runs already."""
    return make_lake_job_view(call.service.lake_jobs.run_pipeline(call.caller.subject))


@metrics.add("POST", "/v1/lake/backtest", "Backtest a routing rule", LakeJobView, status=202,
             takes=NewBacktest, right=Right.MANAGE, extent=RightScope.STORE,
             example={"rule": {"queue": "mail", "when": "message.priority > 5",
                               "do": [{"route": "mail-vip"}]}, "since": "30d"})  # fmt: skip
async def backtest_rule(call: RequestContext, new: NewBacktest) -> LakeJobView:
    """Starts `penstock rule backtest` on this server. Nothing is written. A rule that is saved is
    compared with its saved version: messages it gains and loses."""
    rule = make_rule(new.name, call.scope, new.rule)
    check_rule(rule)
    rules = get_rules(call, Right.MANAGE)
    rules.refuse_masked(rule)
    parse_seconds(new.since)
    try:
        saved = (await rules.get(new.name, scope=call.scope)).rule
    except NotFound:
        saved = None
    former = saved if saved is not None and saved.on is rule.on else None
    jobs, subject = call.service.lake_jobs, call.caller.subject
    return make_lake_job_view(
        jobs.run_backtest(
            describe_rule(rule),
            new.since,
            call.scope,
            subject,
            None if former is None else describe_rule(former),
        )
    )


def describe_rule(rule: Rule) -> dict[str, object]:
    return {**msgspec.to_builtins(make_new_rule(rule)), "name": rule.name}


def make_lake_job_view(job: LakeJob) -> LakeJobView:
    return copy_fields(
        LakeJobView,
        job,
        started_at=to_datetime(job.started_at),
        ended_at=to_optional_datetime(job.ended_at),
    )


@alerts.add(
    "GET", "/v1/alerts", "List alerts", AlertsView, right=Right.MANAGE, extent=RightScope.SCOPE
)
async def list_alerts(call: RequestContext) -> AlertsView:
    found = await make_alerts(call).list(scope=call.scope)
    return AlertsView([make_alert_view(each) for each in found])


@alerts.add(
    "POST", "/v1/alerts", "Create an alert", AlertView, takes=NewAlert, status=201,
    right=Right.MANAGE, extent=RightScope.SCOPE,
    example={"name": "pager", "url": "https://example.org/hook", "severities": ["critical"]},
)  # fmt: skip
async def create_alert(call: RequestContext, new: NewAlert) -> AlertView:
    """Notifications are signed like callbacks (Standard Webhooks). The body has a `text` for
    chats."""
    call.service.limits.reach.refuse("url", new.url)
    await make_alerts(call).add(
        new.name,
        new.url,
        kinds=new.kinds,
        severities=new.severities,
        queues=new.queues,
        min_duration=new.min_duration,
        cooldown=new.cooldown,
        scope=call.scope,
    )
    return make_alert_view(await make_alerts(call).get(new.name, scope=call.scope))


@alerts.add(
    "GET",
    "/v1/alerts/{name}",
    "Get an alert",
    AlertView,
    right=Right.MANAGE,
    extent=RightScope.SCOPE,
)
async def get_alert(call: RequestContext, name: AlertName) -> AlertView:
    return make_alert_view(await make_alerts(call).get(name, scope=call.scope))


@alerts.add(
    "DELETE", "/v1/alerts/{name}", "Delete an alert", None, status=204, right=Right.MANAGE,
    extent=RightScope.SCOPE,
)  # fmt: skip
async def delete_alert(call: RequestContext, name: AlertName) -> None:
    await make_alerts(call).delete(name, scope=call.scope)


@alerts.add(
    "POST", "/v1/alerts/{name}/test", "Send a test alert", AlertView, status=202,
    right=Right.MANAGE, extent=RightScope.SCOPE,
)  # fmt: skip
async def test_alert(call: RequestContext, name: AlertName) -> AlertView:
    """Sends a test notification within seconds. Read the alert to see the outcome."""
    await make_alerts(call).test(name, scope=call.scope)
    call.service.nudge_alerts()
    return make_alert_view(await make_alerts(call).get(name, scope=call.scope))


def make_alerts(call: RequestContext) -> Alerts:
    call.check(Right.MANAGE, "*")
    return call.broker.alerts
