"""The data pipeline: history to the lake, and whether lake and store agree."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.cli.output import as_json, table
from penstock.cli.session import Session, command
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.pipeline.balance import Balance
    from penstock.pipeline.manifest import Manifest

LINES = ("queue", "place", "lake", "above", "store", "archived", "")


@click.group("pipeline")
def pipeline() -> None:
    """History in a lake, by Spark. Needs penstock[spark].

    \b
    penstock pipeline extract --lake lake
    penstock pipeline balance --lake lake
    """


def places(call: Any) -> Any:
    """What every command of the pipeline takes."""
    for option in (
        click.option("--lake", default="lake", show_default=True, help="A directory."),
        click.option("--master", default="local[*]", show_default=True, help="Where Spark runs."),
    ):
        call = option(call)
    return call


@contextmanager
def sparked(master: str, url: str | None = None) -> Iterator[Any]:
    """A store that is not there is missed before Spark is started, which takes its time."""
    try:
        from penstock.pipeline.session import started
        from penstock.pipeline.stores import refuse_new
        from penstock.pipeline.trouble import told
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{error}: pip install 'penstock[spark]'") from None
    if url is not None:
        refuse_new(url)
    with told(), started(master) as spark:
        yield spark


@command(pipeline, "extract")
@places
def extract(session: Session, lake: str, master: str) -> None:
    """Brings what is new in the store into the lake.

    Each message and each row of history once, also if it is killed and run again. Retention waits
    for it.

    \b
    penstock pipeline extract
    penstock pipeline extract --lake /data/lake --url postgresql://penstock@db.example/queue
    """
    with sparked(master, session.url) as spark:
        from penstock.pipeline.extract import extract as extract_all

        done = extract_all(spark, session.url, lake, progress=reporter(session))
    if session.as_json:
        as_json({"lake": lake, **msgspec.to_builtins(done)})
    else:
        print(f"{done.messages} messages and {done.history} rows of history more in {lake}")


def reporter(session: Session) -> Callable[["Manifest"], None]:
    """A line for each batch, where people look on."""

    def report(manifest: "Manifest") -> None:
        if sys.stderr.isatty() and not session.as_json:
            rows = sum(part.rows for part in manifest.parts)
            print(f"batch {manifest.last}: {rows} rows", file=sys.stderr)

    return report


@command(pipeline, "compact")
@places
def compact(session: Session, lake: str, master: str) -> None:
    """Turns the small files of many extracts into few.

    The small ones stay until the next time, for those who read them now.

    \b
    penstock pipeline compact --lake /data/lake
    """
    with sparked(master) as spark:
        from penstock.pipeline.compact import compact as compact_all

        done = compact_all(spark, lake)
    if session.as_json:
        as_json({"lake": lake, **msgspec.to_builtins(done)})
    else:
        print(f"{done.batches} batches of {done.files_before} files are now {done.files} files")


@command(pipeline, "balance")
@click.option("--exact", is_flag=True, help="Compare every row, also if the sums agree.")
@places
def balance(session: Session, lake: str, master: str, exact: bool) -> None:
    """Checks that the lake and what is newer make up the store.

    Counts and id digests of each queue against the store's census, the files against their
    manifests; where they differ, every row. Exit code 1 and the rows that differ if it does not
    balance.

    \b
    penstock pipeline balance
    penstock pipeline balance --exact --json
    """
    with sparked(master, session.url) as spark:
        from penstock.pipeline.balance import balance as weigh

        found = weigh(spark, session.url, lake, exact=exact)
    if session.as_json:
        as_json({"balanced": found.balanced, **msgspec.to_builtins(found)})
    else:
        show(found, queue_names(session))
    if not found.balanced:
        sys.exit(1)


def queue_names(session: Session) -> dict[int, str]:
    queues = session.run(lambda broker: broker.store.queues())
    return {queue.id: queue.name for queue in queues}


def show(found: "Balance", names: dict[int, str]) -> None:
    def named(queue_id: int) -> str:
        return names.get(queue_id, f"queue {queue_id}")

    rows = [
        (named(queue_id), *counts, "ok" if balanced else "DIFFERS")
        for queue_id, *counts, balanced in map(msgspec.structs.astuple, found.lines)
    ]
    table(LINES, rows, "no messages")
    for path in found.damaged:
        print(f"damaged: {path}")
    for each in found.differences:
        at = "" if each.position is None else f" at position {each.position}"
        print(f"{each.kind}: {each.table} {each.id}{at} of {named(each.queue_id)}")
    if found.moving:
        print("the store was written to meanwhile: only what is in the lake was compared")
    print("balanced" if found.balanced else "not balanced")


COMMANDS = {"pipeline": pipeline}
