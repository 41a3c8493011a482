"""The pipeline against bare Spark and against DuckDB: python -m bench.pipeline [--rows N].

Each part in a process of its own. Sessions are started and warm unless it says otherwise; ratios
count, seconds are of this machine.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import psycopg

from bench import duck
from bench.__main__ import own_directory
from bench.lakes import Week, make_store
from penstock.pipeline import extract, read_lake, started
from penstock.pipeline.analyse import analyse
from penstock.pipeline.schema import TABLES
from tests.servers.postgres import Postgres

# What a part must reach; of an extract as much as, of the others as little as.
GOALS = {"extract": 0.7, "run": 6.0, "next hour": 3.0}
# Messages of one transaction, as a busy producer sends them.
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
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    begin = perf_counter()
    yield
    times[name] = perf_counter() - begin


def measure_extract(folder: Path, rows: int) -> dict[str, float]:
    """Half of them messages, half of them history."""
    times: dict[str, float] = {}
    server = Postgres({}, parent=own_directory())
    with server.database() as url, started("local[2]") as spark:
        asyncio.run(make_store(url))
        fill(url, 0, 4)
        with timed(times, "first, small"):
            extract(spark, url, str(folder / "first"))
        fill(url, 4, max(rows // 2 // TRANSACTION, 5))
        with timed(times, "extract"):
            extract(spark, url, str(folder / "export"))
        for name in ("copy, first", "copy"):
            with timed(times, name):
                for table in TABLES:
                    copied = read_lake(spark, str(folder / "export"), table)
                    copied.write.mode("overwrite").parquet(str(folder / "copy" / table))
    return times | {"ratio": times["copy"] / times["extract"]}


def fill(url: str, first: int, end: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(FILL.format(first=first, last=end - 1, size=TRANSACTION))
        connection.execute("VACUUM ANALYZE")


def measure_run(folder: Path, rows: int) -> dict[str, float]:
    """All but the last hour of a week, once, in a session that has done little before."""
    url, lake = f"sqlite:///{folder / 'store.db'}", folder / "lake"
    times: dict[str, float] = {}
    with started("local[2]") as spark:
        week = Week(spark, url, str(lake), rows)
        week.write(1)
        with timed(times, "run"):
            analyse(spark, url, str(lake))
        times["duckdb"] = sum(duck.run(lake, folder / "duck").values())
        week.write(2)
    return times | {"ratio": times["run"] / times["duckdb"]}


def measure_next(folder: Path, rows: int) -> dict[str, float]:
    """The week's last hour, in a new process: how long compared with the start of Spark."""
    times: dict[str, float] = {}
    begin = perf_counter()
    with started("local[2]") as spark:
        spark.range(10).count()
        times["session"] = perf_counter() - begin
        analyse(spark, f"sqlite:///{folder / 'store.db'}", str(folder / "lake"))
        times["next hour"] = perf_counter() - begin
    return times | {"ratio": times["next hour"] / times["session"]}


PARTS: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "extract": measure_extract,
    "run": measure_run,
    "next hour": measure_next,
}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.pipeline", description="Measure the pipeline.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of an extract")
    parser.add_argument("--history", type=int, default=2_000_000, help="rows of a run")
    parser.add_argument("--quick", action="store_true", help="see that it runs")
    parser.add_argument("--only", choices=list(PARTS), nargs="+", default=list(PARTS))
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main() -> None:
    given = arguments()
    if given.quick:
        given.rows, given.history = 20_000, 20_000
    if given.part:
        name, folder = given.part
        rows = given.rows if name == "extract" else given.history
        print(json.dumps(PARTS[name](Path(folder), rows)))
        return
    with TemporaryDirectory(dir=own_directory()) as folder:
        for name in given.only:
            tell(name, ran(name, folder, given), given.json)


def ran(name: str, folder: str, given: argparse.Namespace) -> dict[str, float]:
    sizes = ["--rows", str(given.rows), "--history", str(given.history)]
    command = [sys.executable, "-m", "bench.pipeline", *sizes, "--part", name, folder]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    times: dict[str, float] = json.loads(said.splitlines()[-1])
    return times


def tell(name: str, times: dict[str, float], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"part": name, **times}), flush=True)
        return
    seconds = ", ".join(f"{key} {value:.1f} s" for key, value in times.items() if key != "ratio")
    sign = ">=" if name == "extract" else "<="
    print(f"{name}: {times['ratio']:.2f} (goal {sign} {GOALS[name]}); {seconds}", flush=True)


if __name__ == "__main__":
    main()
