"""Command line: python -m bench.pipeline [--rows N]. Compares with bare Spark and with DuckDB.

Each part runs in its own process.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from time import perf_counter

import msgspec
import psycopg

from bench import duck, page
from bench.__main__ import make_directory
from bench.figures import Figure
from bench.lakes import Week, make_store
from bench.table import HEADER, format_json_line, format_line
from bench.targets import TARGETS
from bench.usage import read_server_seconds
from penstock.pipeline import extract, read_lake, start_session
from penstock.pipeline.analytics.job import analyze
from penstock.pipeline.lake.schema import TABLES
from tests.servers.postgres import Postgres

SUBJECT = "pipeline"
TERMS = """\
Spark as `local[2]` with 1 GB, one turn. `extract`: {rows:,} rows from PostgreSQL, half of them \
messages and half history; the reference is Spark copying the files it made, both with a session \
that did either before. `run`: a run over a week of {history:,} rows of history, in a session \
that did the same with a copy of it before, so that its start is not in it; `first_run` is the \
one before, `run_cpu` how long the processors worked for a run; the reference is DuckDB on two \
threads, making the same tables of the same files. `next_hour`: a run over one new hour after \
that week, in a new process; the reference is the start of Spark, which it includes.\
"""
# Messages per transaction of a busy producer.
TRANSACTION = 1_000
FILL = """
DO $$ BEGIN
FOR batch IN {first}..{last} LOOP
    INSERT INTO penstock.message (queue_id, type, priority, created_at, body)
    SELECT 1, 'type' || n % 6, 0, penstock.moment(),
        convert_to('{{"customer":' || n || ',"note":"' || repeat('x', 150) || '"}}', 'UTF8')
    FROM generate_series(1, {size}) AS n;
    INSERT INTO penstock.history (id, queue_id, verb, state, attempts, deliveries, consumer, fence,
                                  claimed_at, at, final)
    SELECT batch * {size} + n, 1, 'complete', 'completed', 1, 1, 'worker-' || n % 40, n,
        penstock.moment() - 1000, penstock.moment(), true
    FROM generate_series(1, {size}) AS n;
    COMMIT;
END LOOP;
END $$"""


@contextmanager
def time_step(times: dict[str, float], name: str) -> Iterator[None]:
    """Also records the CPU time, of this process and of Java."""
    begin, worked = perf_counter(), read_server_seconds(os.getpid())
    yield
    times[name] = perf_counter() - begin
    times[f"{name}_cpu"] = read_server_seconds(os.getpid()) - worked


def measure_extract(folder: Path, rows: int) -> list[Figure]:
    times: dict[str, float] = {}
    server = Postgres({}, parent=make_directory())
    with server.database() as url, start_session("local[2]") as spark:
        asyncio.run(make_store(url))
        fill(url, 0, 4)
        with time_step(times, "first, small"):
            extract(spark, url, str(folder / "first"))
        fill(url, 4, max(rows // 2 // TRANSACTION, 5))
        with time_step(times, "extract"):
            extract(spark, url, str(folder / "export"))
        for name in ("copy, first", "copy"):
            with time_step(times, name):
                for table in TABLES:
                    copied = read_lake(spark, str(folder / "export"), table)
                    copied.write.mode("overwrite").parquet(str(folder / "copy" / table))
    return [Figure("extract", rows / times["extract"], "row/s", rows / times["copy"])]


def fill(url: str, first: int, end: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(FILL.format(first=first, last=end - 1, size=TRANSACTION))
        connection.execute("VACUUM ANALYZE")


def measure_run(folder: Path, rows: int) -> list[Figure]:
    """Measures a run over a week without its last hour."""
    whole, copy = folder / "week", folder / "week, copied"
    whole.mkdir()
    times: dict[str, float] = {}
    with start_session("local[2]") as spark:
        week = Week(spark, store_in(whole), str(whole / "lake"), rows)
        week.write(1)
        copytree(whole, copy)
        for name, place in (("first_run", copy), ("run", whole)):
            with time_step(times, name):
                analyze(spark, store_in(place), str(place / "lake"))
        with time_step(times, "duckdb"):
            duck.run(whole / "lake", folder / "duck")
        week.write(2)
    return [
        Figure("run", times["run"], "s", times["duckdb"]),
        Figure("run_cpu", times["run_cpu"], "s", times["duckdb_cpu"]),
        Figure("first_run", times["first_run"], "s", times["duckdb"]),
    ]


def store_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'store.db'}"


def measure_next(folder: Path, rows: int) -> list[Figure]:
    """Measures a run over the last hour of the week."""
    begin = perf_counter()
    with start_session("local[2]") as spark:
        spark.range(10).count()
        session = perf_counter() - begin
        analyze(spark, store_in(folder / "week"), str(folder / "week" / "lake"))
        return [Figure("next_hour", perf_counter() - begin, "s", session)]


PARTS: dict[str, Callable[[Path, int], list[Figure]]] = {
    "extract": measure_extract,
    "run": measure_run,
    "next_hour": measure_next,
}


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.pipeline", description="Benchmark the pipeline.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the extract")
    parser.add_argument("--history", type=int, default=2_000_000, help="history rows of the run")
    parser.add_argument("--quick", action="store_true", help="smoke test with few rows")
    parser.add_argument("--only", choices=list(PARTS), nargs="+", default=list(PARTS))
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument(
        "--page", action="store_true", help="write the results to docs/benchmarks.md"
    )
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main() -> None:
    given = parse_arguments()
    if given.quick:
        given.rows, given.history = 20_000, 20_000
    if given.part:
        name, folder = given.part
        rows = given.rows if name == "extract" else given.history
        print(msgspec.json.encode(PARTS[name](Path(folder), rows)).decode())
        return
    tell(given)


def tell(given: argparse.Namespace) -> None:
    terms = TERMS.format(rows=given.rows, history=given.history)
    if not given.json:
        print(f"{terms}\n\n{HEADER}")
    figures: list[Figure] = []
    with TemporaryDirectory(dir=make_directory()) as folder:
        for name in given.only:
            for figure in run_part(name, folder, given):
                target = TARGETS[SUBJECT].get(figure.measure)
                said = (
                    format_json_line(SUBJECT, figure) if given.json else format_line(figure, target)
                )
                print(said, flush=True)
                figures.append(figure)
    if given.page:
        page.keep(SUBJECT, terms, figures, [])


def run_part(name: str, folder: str, given: argparse.Namespace) -> list[Figure]:
    sizes = ["--rows", str(given.rows), "--history", str(given.history)]
    command = [sys.executable, "-m", "bench.pipeline", *sizes, "--part", name, folder]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return msgspec.json.decode(said.splitlines()[-1], type=list[Figure])


if __name__ == "__main__":
    main()
