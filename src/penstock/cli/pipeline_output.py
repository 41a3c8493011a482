"""Prints the progress and the results of pipeline runs."""

import os
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.context import CommandContext
from penstock.cli.output import print_json, print_table
from penstock.errors import InvalidInput
from penstock.extras import require_extra
from penstock.rules.plurals import format_count

if TYPE_CHECKING:
    from penstock.pipeline.report.data import ReportData
    from penstock.pipeline.run import RunResult

BAR_WIDTH = 24
SUMMARY_HOURS = 24
SHOWN_ANOMALIES, SHOWN_CAUSES = 10, 5
COLUMNS = ("queue", "published", "completed", "failed", "backlog", "dead", "wait p95", "run p95")


@contextmanager
def show_progress(session: CommandContext, steps: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Draw a progress bar if stderr is a terminal."""
    seen = sys.stderr.isatty() and not session.as_json
    done: list[str] = []

    def draw() -> None:
        if seen:
            full = BAR_WIDTH * len(done) // len(steps)
            left = ", ".join(step for step in steps if step not in done)
            line = f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] {len(done)}/{len(steps)} {left}"
            print(f"\r\x1b[K{line[:78]}", end="", file=sys.stderr, flush=True)

    def progress(step: str) -> None:
        done.append(step)
        draw()

    draw()
    try:
        yield progress
    finally:
        if seen:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def read_report_data(lake: str, hours: int) -> "ReportData":
    with require_extra("pipeline"):
        from penstock.pipeline.lake.lake import find
        from penstock.pipeline.report.data import read_report_data
    return read_report_data(find(lake), hours)


def show_run(session: CommandContext, lake: str, done: "RunResult") -> None:
    data = read_report_data(lake, SUMMARY_HOURS) if done.figures is not None else None
    if session.as_json:
        print_json(summarize_run(lake, done, data))
        return
    print(
        f"added {format_count(done.extracted.messages, 'message')} and"
        f" {format_count(done.extracted.history, 'history row')} to {lake}; computed"
        f" {format_count(len(done.analysed.hours), 'hour')}"
    )
    if data is not None:
        show_day(data)


def summarize_run(lake: str, done: "RunResult", data: "ReportData | None") -> dict[str, Any]:
    rows = [] if data is None else data.anomalies
    return {
        "lake": lake,
        "extracted": msgspec.to_builtins(done.extracted),
        "hours": len(done.analysed.hours),
        "attempts": done.analysed.attempts,
        "documents": msgspec.to_builtins(done.written),
        "last_day": None if data is None else data.total,
        "anomalies": Counter(row["kind"] for row in rows),
    }


def show_day(data: "ReportData") -> None:
    """Print the queues, anomalies and failure causes of the last day."""
    from penstock.pipeline.report.page import group_alike
    from penstock.rules.anomaly_text import format_anomaly, format_place

    print("\nlast 24 hours")
    print_table(COLUMNS, [make_queue_row(data, queue_id) for queue_id in data.queues], "no queues")
    groups = [rows for rows in group_alike(data.anomalies) if rows[0]["severity"] != "info"]
    if groups:
        print()
        rows = [
            (
                each[0]["severity"],
                each[0]["kind"],
                format_place(each[0]),
                len(each),
                format_anomaly(each[0]),
            )
            for each in groups[:SHOWN_ANOMALIES]
        ]
        print_table(("severity", "anomaly", "queue", "hours", "latest"), rows, "")
        print_rest(len(groups) - SHOWN_ANOMALIES)
    if data.clusters:
        print()
        show_causes(data)


def show_causes(data: "ReportData") -> None:
    from penstock.pipeline.report.verdict import group_by_cause

    causes = group_by_cause(data.clusters)
    rows = []
    for each in causes[:SHOWN_CAUSES]:
        others = len(each.places) - 1
        where = f"{each.places[0].name}, {others} more" if others else each.places[0].name
        rows.append((each.count, each.messages, where, each.template))
    print_table(("failures", "messages", "queue", "cause"), rows, "")
    print_rest(len(causes) - SHOWN_CAUSES)


def count_anomalies(anomalies: Sequence[Mapping[str, Any]]) -> str:
    kinds = Counter(row["severity"] for row in anomalies)
    return f"{kinds['critical']} critical anomalies, {kinds['warning']} warnings"


def print_rest(left: int) -> None:
    if left > 0:
        print(f"and {left} more; run `penstock pipeline report` to see them")


def make_queue_row(data: "ReportData", queue_id: int) -> tuple[Any, ...]:
    from penstock.rules.anomaly_text import format_seconds, format_share

    total = data.totals[queue_id]
    last = (data.backlog.get(queue_id) or [{"backlog": 0, "dead": 0}])[-1]
    return (
        data.queues[queue_id], total["published"], total["completed"],
        format_share(total["failure_rate"]), last["backlog"], last["dead"],
        format_seconds(total["wait_p95"]), format_seconds(total["run_p95"]),
    )  # fmt: skip


def write_atomically(path: str, text: str) -> None:
    """Replace the file in one step, because it may be open in a browser."""
    draft = f"{path}.{uuid.uuid4().hex[:8]}"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError as error:
        raise InvalidInput(f"cannot write {path!r}: {error.strerror}") from None
