"""Renders the report as one self-contained HTML page without scripts."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from penstock.pipeline.periods import HOUR, to_datetime
from penstock.pipeline.report.charts import (
    ChartLine,
    ChartMark,
    draw_bar,
    draw_chart,
    draw_sparkline,
)
from penstock.pipeline.report.data import ReportData
from penstock.pipeline.report.verdict import (
    FAILURE_CRITICAL,
    FAILURE_WARNING,
    CausePlace,
    Concern,
    FailureCause,
    choose_severity,
    find_concerns,
    group_by_cause,
)
from penstock.rules.anomaly_text import (
    Row,
    format_anomaly,
    format_count,
    format_number,
    format_place,
    format_seconds,
    format_share,
)

MINUTE = 60
# A chart cannot show more.
MAX_POINTS = 480
SHOWN_ANOMALIES, SHOWN_CAUSES, SHOWN_PLACES, SHOWN_CONSUMERS = 25, 12, 5, 15
STYLE = "report.css"


def render_page(report: ReportData, now: float) -> str:
    """Renders problems first, then charts, then tables."""
    parts = [
        render_heading(report, now),
        render_tiles(report),
        render_attention(report.anomalies),
        render_charts(report),
        render_failures(report.clusters),
        render_queues(report),
        render_consumers(report.consumers),
        FOOTER,
    ]
    style = files("penstock.pipeline.report").joinpath(STYLE).read_text("utf-8")
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Penstock report: {escape(report.store)}</title>\n<style>\n{style}</style></head>\n"
        f"<body>{body}</body></html>\n"
    )


def render_heading(report: ReportData, now: float) -> str:
    first, last = to_datetime(report.hours[0]), to_datetime(report.reached // 1_000_000)
    age = format_seconds(max(now - report.reached / 1_000_000, 0))
    updated = to_datetime(report.made_at // 1_000_000)
    return (
        f"<header><h1>Penstock report</h1>"
        f"<p>{first:%d %b %Y %H:%M} to {last:%d %b %Y %H:%M} UTC</p>"
        f'<p class="source">Store <code>{escape(report.store)}</code>, lake'
        f" <code>{escape(report.lake)}</code>. Updated {updated:%d %b %Y %H:%M} UTC."
        f" The newest data is {age} old.</p>"
        f"{render_verdict(find_concerns(report, now))}</header>"
    )


def render_verdict(concerns: Sequence[Concern]) -> str:
    """Renders the overall verdict for the operator on call."""
    if not concerns:
        return '<p class="verdict fine"><b>All normal</b></p>'
    severity = concerns[0].severity
    words = "Needs attention" if severity == "critical" else "Check soon"
    reasons = escape(", ".join(each.text for each in concerns))
    return f'<p class="verdict {severity}"><b>{words}:</b> {reasons}</p>'


def render_tiles(report: ReportData) -> str:
    total, rate = report.total, report.total["failure_rate"]
    backlog, dead = count_waiting(report)
    shown = [
        ("published", format_number(total["published"]), ""),
        ("completed", format_number(total["completed"]), ""),
        (
            "failed attempts",
            format_share(rate),
            choose_severity(rate, FAILURE_WARNING, FAILURE_CRITICAL),
        ),
        ("backlog now", format_number(backlog), ""),
        ("dead letters now", format_number(dead), "warning" if dead else ""),
        ("wait, p95", format_seconds(total["wait_p95"]), ""),
        ("run, p95", format_seconds(total["run_p95"]), ""),
    ]
    cells = "".join(
        f'<div class="tile {style}"><b>{value}</b><span>{name}</span></div>'
        for name, value, style in shown
    )
    return f'<section class="tiles">{cells}</section>'


def count_waiting(report: ReportData) -> tuple[int, int]:
    last = [rows[-1] for rows in report.backlog.values()]
    return sum(row["backlog"] for row in last), sum(row["dead"] for row in last)


def render_attention(anomalies: Sequence[Row]) -> str:
    """Hours of the same kind in the same place are one line."""
    marks = [row for row in anomalies if row["severity"] != "info"]
    if not marks:
        return ""
    lines = [render_attention_line(rows) for rows in group_alike(marks)[:SHOWN_ANOMALIES]]
    left = len(group_alike(marks)) - len(lines)
    more = f'<p class="more">and {left} more</p>' if left > 0 else ""
    listed = f'<ul class="anomalies">{"".join(lines)}</ul>'
    return f"<section><h2>Anomalies</h2>{listed}{more}</section>"


def group_alike(anomalies: Iterable[Row]) -> list[list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in anomalies:
        key = row["kind"], row["queue_id"], row["type"], row["consumer"]
        found.setdefault(key, []).append(row)
    return list(found.values())


def render_attention_line(rows: list[Row]) -> str:
    newest = rows[0]
    where = format_place(newest)
    others = len(rows) - 1
    before = f", and {others} hour{'s' if others > 1 else ''} before" if others else ""
    hours = f"{newest['hour']:%d %b %H:%M}{before}"
    example = f", e.g. {show_command(newest)}" if newest["message_id"] else ""
    return (
        f'<li class="{newest["severity"]}"><b>{escape(newest["kind"].replace("_", " "))}</b>'
        f' <span class="where">{escape(where)}</span>'
        f' {escape(format_anomaly(newest))}{example} <span class="when">{hours}</span></li>'
    )


def show_command(row: Row) -> str:
    return f"<code>penstock show {row['message_id']}</code>"


def render_charts(report: ReportData) -> str:
    period, marks = (report.hours[0], report.hours[-1] + HOUR), make_marks(report.anomalies)
    counts = [
        make_hour_line(report, "published", "published", "blue"),
        make_hour_line(report, "completed", "completed", "green", filled=True),
        make_hour_line(report, "failures", "failed attempts", "red"),
    ]
    wait, run = make_percentile_lines(report, "wait"), make_percentile_lines(report, "run")
    drawn = [
        draw_chart("Messages per hour", counts, period, marks, format_number),
        draw_chart("Backlog", make_backlog_lines(report), period, marks, format_number),
        draw_chart("Wait time", wait, period, marks, format_seconds, logarithmic=True),
        draw_chart("Run time", run, period, marks, format_seconds, logarithmic=True),
    ]
    return f'<section class="charts">{"".join(drawn)}</section>'


def make_marks(anomalies: Iterable[Row]) -> list[ChartMark]:
    """Makes a mark for each hour with warnings, and describes them on hover."""
    found: dict[int, list[Row]] = {}
    for row in anomalies:
        if row["severity"] != "info":
            found.setdefault(int(row["hour"].timestamp()), []).append(row)
    return [
        ChartMark(
            hour + HOUR // 2,
            rows[0]["severity"],
            "\n".join(describe_anomaly(row) for row in rows[:8]),
        )
        for hour, rows in sorted(found.items())
    ]


def describe_anomaly(row: Row) -> str:
    kind = row["kind"].replace("_", " ")
    return f"{row['hour']:%d %b %H:%M} {kind}, {row['queue']}: {format_anomaly(row)}"


def make_hour_line(
    report: ReportData, column: str, name: str, style: str, *, filled: bool = False
) -> ChartLine:
    """Places each point in the middle of its hour. Hours without data are 0."""
    points = [
        (hour + HOUR // 2, report.overall.get(hour, {}).get(column, 0)) for hour in report.hours
    ]
    return ChartLine(name, style, points, filled)


def make_percentile_lines(report: ReportData, name: str) -> list[ChartLine]:
    styles = {50: ("median", "green"), 95: ("p95", "amber"), 99: ("p99", "red")}
    return [
        ChartLine(text, style, [
            (hour + HOUR // 2, report.overall.get(hour, {}).get(f"{name}_p{percent}"))
            for hour in report.hours
        ])
        for percent, (text, style) in styles.items()
    ]  # fmt: skip


def make_backlog_lines(report: ReportData) -> list[ChartLine]:
    return [
        ChartLine("unfinished", "blue", make_minute_points(report, "backlog"), filled=True),
        ChartLine("dead letters", "red", make_minute_points(report, "dead")),
    ]


def make_minute_points(report: ReportData, column: str) -> list[tuple[int, float | None]]:
    """Returns the highest total of all queues in each step."""
    begin, end = report.hours[0], report.reached // 1_000_000 + MINUTE
    step = max(1, (end - begin) // MINUTE // MAX_POINTS) * MINUTE
    changes = sorted(
        (int(row["minute"].timestamp()), queue_id, row[column])
        for queue_id, rows in report.backlog.items()
        for row in rows
    )
    points: list[tuple[int, float | None]] = []
    at, now = 0, dict.fromkeys(report.backlog, 0)
    for moment in range(begin, end, step):
        highest = None
        while at < len(changes) and changes[at][0] < moment + step:
            now[changes[at][1]] = changes[at][2]
            at += 1
            if at == len(changes) or changes[at][0] != changes[at - 1][0]:
                highest = max(highest or 0, sum(now.values()))
        points.append((moment, float(sum(now.values()) if highest is None else highest)))
    return points


def render_failures(clusters: Sequence[Row]) -> str:
    causes = group_by_cause(clusters)
    if not causes:
        return ""
    rows = "".join(render_cause(each, causes[0].count) for each in causes[:SHOWN_CAUSES])
    left = len(causes) - SHOWN_CAUSES
    more = f'<p class="more">and {left} more causes</p>' if left > 0 else ""
    table = f'<table class="causes">{rows}</table>{more}'
    return f"<section><h2>Failures by cause</h2>{table}</section>"


def render_cause(cause: FailureCause, most: int) -> str:
    places = "".join(map(render_cause_place, cause.places[:SHOWN_PLACES]))
    left = len(cause.places) - SHOWN_PLACES
    more = f'<div class="when">and {left} more queues and types</div>' if left > 0 else ""
    bar = draw_bar(cause.count / most, "red")
    return (
        f'<tr><td class="count">{format_number(cause.count)}{bar}</td>'
        f"<td><code>{escape(cause.template[:300])}</code>{places}{more}</td></tr>"
    )


def render_cause_place(place: CausePlace) -> str:
    common = ", ".join(
        f"{each['name']} = {each['value']} in {format_share(each['share'])}"
        f" (usually {format_share(each['usual'])})"
        for each in place.newest["attributes"]
    )
    shared = f'<div class="common">in common: {escape(common)}</div>' if common else ""
    dead = f", {format_number(place.dead)} dead" if place.dead else ""
    failures = format_count(place.count, "failure", "failures")
    return (
        f'<div class="when">{escape(place.name)}: {failures}'
        f" of {format_count(place.messages, 'message', 'messages')}{dead},"
        f" last {place.newest['last_at']:%d %b %H:%M}, {show_command(place.newest)}</div>{shared}"
    )


def render_queues(report: ReportData) -> str:
    heads = (
        "queue", "per hour", "published", "completed", "failed", "backlog", "dead", "wait p95",
        "run p95",
    )  # fmt: skip
    rows = [render_queue_cells(report, queue_id, name) for queue_id, name in report.queues.items()]
    return f"<section><h2>Queues</h2>{render_table(heads, rows)}</section>"


def render_queue_cells(report: ReportData, queue_id: int, name: str) -> list[str]:
    total, hours = report.totals[queue_id], report.by_queue[queue_id]
    last = (report.backlog.get(queue_id) or [{"backlog": 0, "dead": 0}])[-1]
    line = draw_sparkline([hours.get(hour, {}).get("completed") for hour in report.hours], "green")
    return [
        escape(name), line, format_number(total["published"]), format_number(total["completed"]),
        format_share(total["failure_rate"]), format_number(last["backlog"]),
        format_number(last["dead"]), format_seconds(total["wait_p95"]),
        format_seconds(total["run_p95"]),
    ]  # fmt: skip


def render_consumers(consumers: Sequence[Row]) -> str:
    if not consumers:
        return ""
    heads = ("consumer", "queue", "attempts", "failed", "lost", "mean run", "longest")
    rows = [
        [
            escape(row["consumer"]), escape(row["queue"] or ""), format_number(row["attempts"]),
            format_number(row["failures"]), format_number(row["lost"]),
            format_seconds(row["busy"] / row["attempts"]), format_seconds(row["run_max"]),
        ]
        for row in consumers[:SHOWN_CONSUMERS]
    ]  # fmt: skip
    return f"<section><h2>Busiest consumers</h2>{render_table(heads, rows)}</section>"


def render_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{whole}</div>'


FOOTER = (
    "<footer>Times are in UTC. Wait time runs from publish, or from when a retry is due, to the"
    " claim. Percentiles are accurate to 1 %. Unfinished messages are ready, scheduled or"
    " claimed.</footer>"
)
