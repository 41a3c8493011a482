"""The data pipeline: history to the lake, what it tells, and whether lake and store agree."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.cli.context import CommandContext, command
from penstock.cli.output import print_json, print_table
from penstock.cli.pipeline_output import (
    count_anomalies,
    read_report_data,
    show_progress,
    show_run,
    write_whole,
)
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.pipeline.analytics.thresholds import AnomalyThresholds
    from penstock.pipeline.lake.manifest import Manifest
    from penstock.pipeline.reconcile.reconcile import Balance

LINES = ("queue", "place", "lake", "above", "store", "archived", "")
where = click.option(
    "--lake", default="lake", show_default=True, help="A directory, or s3://BUCKET/PREFIX."
)


@click.group("pipeline")
def pipeline() -> None:
    """History in a lake, by Spark. Needs penstock[spark].

    \b
    penstock pipeline run --lake lake
    penstock pipeline report --lake lake
    penstock pipeline balance --lake lake
    """


def choose_master(context: click.Context, _: click.Parameter, remote: str | None) -> None:
    """Where Spark runs is one thing, whichever option says it."""
    if remote is None:
        return
    if not remote.startswith("sc://"):
        raise click.BadParameter(f"{remote!r} is not like sc://spark.example:15002")
    context.params["master"] = remote


def add_pipeline_options(call: Any) -> Any:
    """What every command of the pipeline takes."""
    for option in (
        where,
        click.option(
            "--remote",
            expose_value=False,
            callback=choose_master,
            help="Or Spark Connect: sc://host.",
        ),
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            is_eager=True,
            help="Where Spark runs.",
        ),
    ):
        call = option(call)
    return call


@contextmanager
def open_spark(
    master: str, url: str | None = None, checks: Callable[[], object] = lambda: None
) -> Iterator[Any]:
    """What is wrong is said before Spark is started, which takes its time."""
    try:
        from penstock.pipeline.session import start_session
        from penstock.pipeline.spark.errors import translate_errors
        from penstock.pipeline.store_access import refuse_new
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{error}: pip install 'penstock[spark]'") from None
    if url is not None:
        refuse_new(url)
    checks()
    with translate_errors(), start_session(master) as spark:
        yield spark


@command(pipeline, "extract")
@add_pipeline_options
def extract(session: CommandContext, lake: str, master: str) -> None:
    """Brings what is new in the store into the lake.

    Each message and each row of history once, also if it is killed and run again. Retention waits
    for it.

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
        print(f"{done.messages} messages and {done.history} rows of history more in {lake}")


def make_reporter(session: CommandContext) -> Callable[["Manifest"], None]:
    """A line for each batch, where people look on."""

    def report(manifest: "Manifest") -> None:
        if sys.stderr.isatty() and not session.as_json:
            rows = sum(part.rows for part in manifest.parts)
            print(f"batch {manifest.last}: {rows} rows", file=sys.stderr)

    return report


@command(pipeline, "compact")
@add_pipeline_options
def compact(session: CommandContext, lake: str, master: str) -> None:
    """Merges small files of neighbouring batches.

    Files over 128 MB are left alone. Merged ones stay until the next compaction, for queries
    that read them now.

    \b
    penstock pipeline compact --lake /data/lake
    """
    with open_spark(master) as spark:
        from penstock.pipeline.lake.compact import compact as compact_all

        done = compact_all(spark, lake)
    if session.as_json:
        print_json({"lake": lake, **msgspec.to_builtins(done)})
    else:
        print(f"{done.files_before} small files of {done.batches} batches are now {done.files}")


@command(pipeline, "balance")
@click.option("--exact", is_flag=True, help="Compare every row, also if the sums agree.")
@add_pipeline_options
def balance(session: CommandContext, lake: str, master: str, exact: bool) -> None:
    """Checks that the lake and what is newer make up the store.

    Counts and id digests of each queue against the store's census, the files against their
    manifests; where they differ, every row. Exit code 1 and the rows that differ if it does not
    balance.

    \b
    penstock pipeline balance
    penstock pipeline balance --exact --json
    """
    with open_spark(master, session.url) as spark:
        from penstock.pipeline.reconcile.reconcile import balance as weigh

        found = weigh(spark, session.url, lake, exact=exact)
    if session.as_json:
        print_json({"balanced": found.balanced, **msgspec.to_builtins(found)})
    else:
        show(found, name_queues(session))
    if not found.balanced:
        sys.exit(1)


def name_queues(session: CommandContext) -> dict[int, str]:
    queues = session.run(lambda broker: broker.store.queues())
    return {queue.id: queue.name for queue in queues}


def show(found: "Balance", names: dict[int, str]) -> None:
    def named(queue_id: int) -> str:
        return names.get(queue_id, f"queue {queue_id}")

    rows = [
        (named(queue_id), *counts, "ok" if balanced else "DIFFERS")
        for queue_id, *counts, balanced in map(msgspec.structs.astuple, found.lines)
    ]
    print_table(LINES, rows, "no messages")
    for path in found.damaged:
        print(f"damaged: {path}")
    for each in found.differences:
        at = "" if each.position is None else f" at position {each.position}"
        print(f"{each.kind}: {each.table} {each.id}{at} of {named(each.queue_id)}")
    if found.moving:
        print("the store was written to meanwhile: only what is in the lake was compared")
    print("balanced" if found.balanced else "not balanced")


@command(pipeline, "run")
@click.option("--rules", metavar="FILE", help="From when on something is an anomaly, in TOML.")
@click.option(
    "--rule", "changes", multiple=True, metavar="NAME=VALUE", help="One of them; beats the file."
)
@add_pipeline_options
def run(
    session: CommandContext, rules: str | None, changes: tuple[str, ...], lake: str, master: str
) -> None:
    """Extracts, then makes metrics, anomalies and causes of failures.

    Of the hours that are new, or changed: it may run as often as you like, and be killed. The
    tables are in the lake, and the newest of them in the store, for the service to show.

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
@click.option("--out", default="report.html", show_default=True, help="The file to write.")
@click.option(
    "--hours", type=click.IntRange(1, 24 * 366), default=24, show_default=True, help="The last."
)
@where
def report(session: CommandContext, out: str, hours: int, lake: str) -> None:
    """Writes what the last run found as one page of HTML.

    It needs no network and no other file. Spark is not started.

    \b
    penstock pipeline report
    penstock pipeline report --hours 168 --out week.html
    """
    told = read_report_data(lake, hours)
    from penstock.pipeline.report.page import render_page

    write_whole(out, render_page(told, time.time()))
    if session.as_json:
        print_json({"lake": lake, "out": out, "hours": hours, "anomalies": len(told.anomalies)})
    else:
        print(f"{out}: {hours} hours, {count_anomalies(told.anomalies)}")


COMMANDS = {"pipeline": pipeline}
