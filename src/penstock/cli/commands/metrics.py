"""The commands `metrics`, `consumers` and `anomalies`."""

from collections.abc import Callable, Sequence
from typing import Any

import click
from msgspec.structs import asdict

from penstock.broker.anomalies import AnomalyQuery
from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.options import limit_option, severity_option
from penstock.cli.output import format_ago, format_clock, format_time, print_json, print_table
from penstock.model.anomalies import Anomaly, AnomalyReport
from penstock.model.message import Moment
from penstock.model.metrics import HOUR_S, ConsumerMetrics, ConsumerStats, MetricPoint, QueueMetrics
from penstock.rules.anomaly_text import format_number, format_seconds
from penstock.rules.durations import parse_seconds
from penstock.rules.filter_parser import parse_moment

group = click.Group()
BARS = "▁▂▃▄▅▆▇█"
# Marks a step in which nothing was measured.
BLANK = "·"
MAX_BARS = 72
COUNTED = ("published", "completed", "failures", "retried", "dead", "lost")
DEPTHS = ("unfinished", "dead_letters")
CONSUMER_COLUMNS = (
    "consumer", "queue", "attempts", "completed", "failures", "lost", "busy", "longest", "last",
)  # fmt: skip
MINUTE_TIMES, HOUR_TIMES = ("wait_mean", "run_mean"), ("wait_p95", "run_p95")
since_option = click.option("--since", help="Start: 2026-11-16T10:00Z, today or -2h.")
until_option = click.option("--until", help="End. Default: now.")


@command(group, "metrics")
@click.argument("queue")
@click.option("--type", "type_", help="Only messages of this type.")
@since_option
@until_option
@click.option("--step", default="1m", show_default=True, help="Length of a step: 1m, 15m or 1h.")
def metrics(
    session: CommandContext,
    queue: str,
    type_: str | None,
    since: str | None,
    until: str | None,
    step: str,
) -> None:
    """Show metrics of a queue, by default for the last hour.

    Minutes are kept for 48 hours and hours for 90 days. Hours have percentiles of wait and run
    time. Minutes of the last hour have percentiles of the wait only.

    \b
    penstock metrics mail
    penstock metrics mail --since -24h --step 1h
    """

    async def work(broker: Broker) -> QueueMetrics:
        first, last = await read_times(broker, since, until)
        return await broker.metrics.queue(
            queue,
            type=type_,
            since=first,
            until=last,
            step=parse_seconds(step),
            scope=session.scope,
        )

    found = session.run(work)
    if session.as_json:
        print_json(describe_metrics(found))
        return
    print_metrics(found)


async def read_times(
    broker: Broker, since: str | None, until: str | None
) -> tuple[Moment | None, Moment | None]:
    now = await broker.now()
    first = None if since is None else parse_moment(since, now)
    return first, None if until is None else parse_moment(until, now)


def print_metrics(found: QueueMetrics) -> None:
    points = found.points
    print(f"{found.queue}  {format_clock(points[0].at)} to {format_clock(points[-1].at)} UTC,"
          f" each bar {format_seconds(found.step * count_merged(points))}")  # fmt: skip
    times = HOUR_TIMES if found.step >= HOUR_S else MINUTE_TIMES
    rows: list[tuple[Any, ...]] = []
    for names, gather, write in (
        (COUNTED, sum, format_number),
        (DEPTHS, last_of, format_number),
        (times, max, format_seconds),
    ):
        rows += [make_line(name, points, gather, write) for name in names]
    print_table(("measure", "trend", "total", "most", "last"), rows, "")
    live = found.live
    oldest = (
        "" if live.oldest_at is None else f", the next waits since {format_clock(live.oldest_at)}"
    )
    print(f"now: {live.ready} ready, {live.scheduled} scheduled, {live.claimed} claimed,"
          f" {live.dead} dead{oldest}")  # fmt: skip


def make_line(
    name: str,
    points: Sequence[MetricPoint],
    gather: Callable[[Sequence[Any]], Any],
    write: Callable[[float | None], str],
) -> tuple[Any, ...]:
    values = [getattr(each, name) for each in points]
    width = count_merged(points)
    merged = [
        gather_known(gather, values[first : first + width])
        for first in range(0, len(values), width)
    ]
    known = [each for each in merged if each is not None]
    total = write(sum(known)) if gather is sum else None
    most = write(max(known)) if known else None
    return name, draw_bars(merged), total, most, write(merged[-1])


def count_merged(points: Sequence[MetricPoint]) -> int:
    """Returns the number of steps per bar."""
    return -(-len(points) // MAX_BARS)


def gather_known(gather: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> Any:
    known = [each for each in values if each is not None]
    return gather(known) if known else None


def last_of(values: Sequence[Any]) -> Any:
    return values[-1]


def draw_bars(values: Sequence[float | None]) -> str:
    most = max((each for each in values if each is not None), default=0)
    return "".join(draw_bar(each, most) for each in values)


def draw_bar(value: float | None, most: float) -> str:
    if value is None:
        return BLANK
    return BARS[0] if most <= 0 else BARS[min(7, int(value / most * 7.999))]


def describe_metrics(found: QueueMetrics) -> dict[str, Any]:
    return asdict(found) | {
        "final_until": format_time(found.final_until),
        "points": [asdict(each) | {"at": format_time(each.at)} for each in found.points],
        "live": asdict(found.live) | {"oldest_at": format_time(found.live.oldest_at)},
    }


@command(group, "consumers")
@click.option("--queue", help="Only this queue.")
@since_option
@until_option
def consumers(
    session: CommandContext, queue: str | None, since: str | None, until: str | None
) -> None:
    """Show statistics of consumers for the last hours.

    Statistics cover whole hours and are kept for 48 hours.

    \b
    penstock consumers
    penstock consumers --queue mail --since -24h
    """

    async def work(broker: Broker) -> tuple[ConsumerMetrics, Moment]:
        first, last = await read_times(broker, since, until)
        found = await broker.metrics.consumers(
            queue=queue, since=first, until=last, scope=session.scope
        )
        return found, await broker.now()

    found, now = session.run(work)
    if session.as_json:
        listed = [describe_consumer(each) for each in found.consumers]
        print_json({"consumers": listed, "final_until": format_time(found.final_until)})
        return
    rows = [
        (each.consumer, each.queue, each.attempts, each.completed, each.failures, each.lost,
         format_seconds(each.busy), format_seconds(each.run_max), format_ago(each.last_at, now))
        for each in found.consumers
    ]  # fmt: skip
    print_table(CONSUMER_COLUMNS, rows, "no consumer finished a delivery in this time")


def describe_consumer(stats: ConsumerStats) -> dict[str, Any]:
    moments = {"first_at": format_time(stats.first_at), "last_at": format_time(stats.last_at)}
    return asdict(stats) | moments


@command(group, "anomalies")
@click.option("--kind", "kinds", multiple=True, help="Only this kind. Repeatable.")
@severity_option
@click.option("--queue", "queues", multiple=True, help="Only this queue, or a glob.")
@click.option("--state", type=click.Choice(("open", "resolved")), help="Only open or resolved.")
@since_option
@until_option
@limit_option("anomalies", 50, 1_000)
def anomalies(
    session: CommandContext, since: str | None, until: str | None, **filters: Any
) -> None:
    """List anomalies, by default of the last day.

    An anomaly is resolved when its condition has not occurred for ten minutes. Workers and servers
    detect anomalies.

    \b
    penstock anomalies
    penstock anomalies --state open --severity critical
    """

    async def work(broker: Broker) -> tuple[AnomalyReport, Moment]:
        first, last = await read_times(broker, since, until)
        query = AnomalyQuery(since=first, until=last, **filters)
        return await broker.anomalies.list(query, scope=session.scope), await broker.now()

    report, now = session.run(work)
    if session.as_json:
        print_json({
            "anomalies": [describe_anomaly(each) for each in report.anomalies],
            "by_kind": report.by_kind, "by_severity": report.by_severity,
            "complete": report.complete,
        })  # fmt: skip
        return
    rows = [
        (each.severity, each.kind, each.queue or None, each.state, format_ago(each.last_at, now),
         each.text, each.message_id)
        for each in report.anomalies
    ]  # fmt: skip
    columns = ("severity", "anomaly", "queue", "state", "last", "text", "message")
    print_table(columns, rows, "no anomalies")
    counted = ", ".join(f"{count} {name}" for name, count in report.by_severity.items())
    if counted:
        total = sum(report.by_severity.values())
        print(f"{total} {'anomaly' if total == 1 else 'anomalies'}: {counted}")
    if not report.complete:
        print("the range has more than are read: the oldest are missing; give --until")


def describe_anomaly(anomaly: Anomaly) -> dict[str, Any]:
    moments = ("hour", "first_at", "last_at", "resolved_at")
    id = anomaly.message_id
    return (
        asdict(anomaly)
        | {name: format_time(getattr(anomaly, name)) for name in moments}
        | {"message_id": None if id is None else str(id)}
    )


COMMANDS = {"metrics": metrics, "consumers": consumers, "anomalies": anomalies}
