"""Computes the result tables of the pipeline with DuckDB, from the same files."""

import re
from pathlib import Path
from time import perf_counter

import duckdb

QUERIES = Path(__file__).with_name("duck.sql")
STEP = re.compile(r"^-- step: (\w+)$", re.MULTILINE)


def run(lake: Path, folder: Path) -> dict[str, float]:
    """Returns the seconds of each step, on two threads like Spark. Writes one file per day."""
    folder.mkdir(exist_ok=True)
    took = {}
    macros, *steps = STEP.split(QUERIES.read_text())
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET TimeZone = 'UTC'")
        for table in ("message", "history"):
            files = f"{lake}/{table}/batch=*/*.parquet"
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}')")
        connection.execute(macros)
        for name, query in zip(steps[::2], steps[1::2], strict=True):
            begin = perf_counter()
            create_view(connection, folder / name, name, query)
            took[name] = perf_counter() - begin
    return took


def create_view(connection: duckdb.DuckDBPyConnection, path: Path, name: str, query: str) -> None:
    path.mkdir()
    whole = f"COPY ({query}) TO '{path}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day))"
    connection.execute(whole)
    files = f"read_parquet('{path}/**/*.parquet', hive_partitioning = false)"
    connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {files}")
