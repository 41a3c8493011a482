"""The `pipeline` commands: extract, analyze, report, compact and reconcile."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.cli.context import CommandContext, command
from penstock.cli.options import limit_option
from penstock.cli.output import print_json, print_json_lines, print_table
from penstock.cli.pipeline_output import (
    count_anomalies,
    read_report_data,
    show_progress,
    show_run,
    write_atomically,
)
from penstock.extras import require_extra
from penstock.rules.plurals import format_count

if TYPE_CHECKING:
    from penstock.model.anomalies import AnomalyThresholds
    from penstock.pipeline.lake.manifest import Manifest
    from penstock.pipeline.reconcile.reconcile import Balance

COLUMNS = ("queue", "rows", "lake", "newer", "store", "archived", "")
lake_option = click.option(
    "--lake", default="lake", show_default=True, help="Lake directory or s3://BUCKET/PREFIX."
)


@click.group("pipeline")
def pipeline() -> None:
    """Export history to a data lake and analyze it. Requires penstock[pipeline].

    \b
    penstock pipeline run --lake lake
    penstock pipeline report --lake lake
    penstock pipeline balance --lake lake
    """


def choose_master(context: click.Context, _: click.Parameter, remote: str | None) -> None:
    """Store --remote as the master, because the commands take one address of Spark."""
    if remote is None:
        return
    if not remote.startswith("sc://"):
        raise click.BadParameter(f"{remote!r} must look like sc://spark.example:15002")
    context.params["master"] = remote


def add_pipeline_options(call: Any) -> Any:
    """Add the options shared by the commands that use Spark."""
    for option in (
        lake_option,
        click.option(
            "--remote",
            expose_value=False,
            callback=choose_master,
            help="Spark Connect server (sc://HOST), instead of --master.",
        ),
        click.option(
            "--master", default="local[*]", show_default=True, is_eager=True, help="Spark master."
        ),
    ):
        call = option(call)
    return call


@contextmanager
def open_spark(
    master: str, url: str | None = None, checks: Callable[[], object] = lambda: None
) -> Iterator[Any]:
    """Start Spark. Everything that can fail is checked before, because starting is slow."""
    with require_extra("pipeline"):
        from penstock.pipeline.session import start_session
        from penstock.pipeline.spark.errors import translate_errors
        from penstock.pipeline.store_access import refuse_new
    if url is not None:
        refuse_new(url)
    checks()
    with translate_errors(), start_session(master) as spark:
        yield spark


@command(pipeline, "extract")
@add_pipeline_options
def extract(session: CommandContext, lake: str, master: str) -> None:
    """Copy new messages and history from the store to the lake.

    Every row is copied exactly once, even if the command is killed and run again. Retention keeps
    rows until they are extracted.

    \b
    penstock pipeline extract
    penstock pipeline extract --lake /data/lake --url postgresql://penstock@db.example/queue
    penstock pipeline extract --lake s3://history/mail
    """
    with open_spark(master, session.url) as spark:
        from penstock.pipeline.extraction.extract import extract as extract_all

        done = extract_all(spark, session.url, lake, progress=make_reporter(session))
    if session.as_json:
        print_json({"lake": lake, **msgspec.to_builtins(done)})
    else:
        acts = f" and {done.acts} audit entries" if done.acts else ""
        print(
            f"added {format_count(done.messages, 'message')} and"
            f" {format_count(done.history, 'history row')}{acts} to {lake}"
        )


def make_reporter(session: CommandContext) -> Callable[["Manifest"], None]:
    """Print a line per batch if stderr is a terminal."""

    def report(manifest: "Manifest") -> None:
        if sys.stderr.isatty() and not session.as_json:
            rows = sum(part.rows for part in manifest.parts)
            print(f"batch {manifest.last}: {rows} rows", file=sys.stderr)

    return report


@command(pipeline, "compact")
@add_pipeline_options
def compact(session: CommandContext, lake: str, master: str) -> None:
    """Merge small files of adjacent batches.

    Files over 128 MB are left alone. The merged files stay until the next compaction, because
    running queries may still read them.

    \b
    penstock pipeline compact --lake /data/lake
    """
    with open_spark(master) as spark:
        from penstock.pipeline.lake.compact import compact as compact_all

        done = compact_all(spark, lake)
    session.print_result(
        {"lake": lake, **msgspec.to_builtins(done)},
        f"merged {done.files_before} small files of {done.batches} batches into {done.files}",
    )


@command(pipeline, "balance")
@click.option("--exact", is_flag=True, help="Compare every row even if the checksums agree.")
@add_pipeline_options
def balance(session: CommandContext, lake: str, master: str, exact: bool) -> None:
    """Reconcile the lake with the store: every row must be present exactly once.

    Compares counts and checksums of each queue, and files with their manifests. Where they differ,
    every row is compared. If the lake does not balance, the differing rows are printed and the exit
    code is 1.

    \b
    penstock pipeline balance
    penstock pipeline balance --exact --json
    """
    with open_spark(master, session.url) as spark:
        from penstock.pipeline.reconcile.reconcile import balance as reconcile

        found = reconcile(spark, session.url, lake, exact=exact)
    if session.as_json:
        print_json({"balanced": found.balanced, **msgspec.to_builtins(found)})
    else:
        print_balance(found, name_queues(session))
    if not found.balanced:
        sys.exit(1)


def name_queues(session: CommandContext) -> dict[int, str]:
    queues = session.run_on_store(lambda store: store.queues())
    return {queue.id: queue.name for queue in queues}


def print_balance(found: "Balance", names: dict[int, str]) -> None:
    def get_name(queue_id: int) -> str:
        return names.get(queue_id, f"queue {queue_id}")

    rows = [
        (get_name(queue_id), *counts, "ok" if balanced else "DIFFERS")
        for queue_id, *counts, balanced in map(msgspec.structs.astuple, found.lines)
    ]
    print_table(COLUMNS, rows, "no messages")
    for path in found.damaged:
        print(f"damaged: {path}")
    for each in found.differences:
        at = "" if each.position is None else f" at position {each.position}"
        print(f"{each.kind}: {each.table} {each.id}{at} of {get_name(each.queue_id)}")
    if found.moving:
        print("the store changed during the comparison; only rows in the lake were compared")
    print("balanced" if found.balanced else "not balanced")


@command(pipeline, "run")
@click.option("--rules", metavar="FILE", help="TOML file with anomaly thresholds.")
@click.option(
    "--rule", "changes", multiple=True, metavar="NAME=VALUE",
    help="Set one threshold. Overrides --rules. Repeatable.",
)  # fmt: skip
@add_pipeline_options
def run(
    session: CommandContext, rules: str | None, changes: tuple[str, ...], lake: str, master: str
) -> None:
    """Extract, then compute metrics, anomalies and failure causes.

    Only new and changed hours are computed. The command can run at any time and be killed safely.
    Results are written to the lake, and the latest also to the store, where the HTTP service reads
    them.

    \b
    penstock pipeline run
    penstock pipeline run --rules rules.toml --rule slow_over=60 --rule off=flash_message
    """
    with open_spark(master, session.url, checks=lambda: read_thresholds(rules, changes)) as spark:
        from penstock.pipeline.run import STEPS
        from penstock.pipeline.run import run as run_all

        with show_progress(session, STEPS) as progress:
            done = run_all(
                spark, session.url, lake, read_thresholds(rules, changes), progress=progress
            )
    show_run(session, lake, done)


def read_thresholds(path: str | None, changes: tuple[str, ...]) -> "AnomalyThresholds":
    from penstock.pipeline.analytics.thresholds import load

    return load(path, changes)


@command(pipeline, "report")
@click.option("--out", default="report.html", show_default=True, help="Output file.")
@click.option(
    "--hours",
    type=click.IntRange(1, 24 * 366),
    default=24,
    show_default=True,
    help="Hours to cover.",
)
@lake_option
def report(session: CommandContext, out: str, hours: int, lake: str) -> None:
    """Write an HTML report of the last run.

    The page is one self-contained file. Spark is not started.

    \b
    penstock pipeline report
    penstock pipeline report --hours 168 --out week.html
    """
    data = read_report_data(lake, hours)
    from penstock.pipeline.report.page import render_page

    write_atomically(out, render_page(data, time.time()))
    session.print_result(
        {"lake": lake, "out": out, "hours": hours, "anomalies": len(data.anomalies)},
        f"{out}: {hours} hours, {count_anomalies(data.anomalies)}",
    )


@command(pipeline, "results")
@click.argument("kind", type=click.Choice(("anomaly", "metrics", "backlog", "consumers", "triage")))
@limit_option("results", 100, 1_000)
def results(session: CommandContext, kind: str, limit: int) -> None:
    """Print results that a run wrote to the store, as JSON lines.

    They cover the last seven days. Spark is not started.

    \b
    penstock pipeline results anomaly
    penstock pipeline results metrics --limit 10
    """
    found = [
        each
        for each in session.run_on_store(lambda store: store.documents(kind, "lake/", limit))
        if each.name.startswith("lake/")
    ]
    print_json_lines(msgspec.json.decode(each.body) for each in found)


COMMANDS = {"pipeline": pipeline}
