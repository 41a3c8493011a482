"""The lake as other engines read it: by the Delta logs of its tables."""

import os
from collections import Counter
from typing import Any
from urllib.parse import unquote

import duckdb
import polars
import pyarrow as pa
from deltalake import DeltaTable

from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.reader import list_paths
from penstock.pipeline.lake.result_tables import RESULT_TABLES
from penstock.pipeline.lake.schema import TABLES

# Where a bucket is, as Delta's readers take it.
S3_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
)  # fmt: skip


def storage(lake: str) -> dict[str, str] | None:
    if not lake.startswith("s3://"):
        return None
    return {name: os.environ[name] for name in S3_VARIABLES if name in os.environ}


def open_table(lake: str, table: str, version: int | None = None) -> DeltaTable:
    return DeltaTable(f"{lake}/{table}", version=version, storage_options=storage(lake))


def count_rows(lake: str, table: str) -> dict[str, int]:
    """By engine. A count that is answered from statistics is not one: a column is read."""
    column = "queue_id"
    opened = open_table(lake, table)
    dataset: Any = opened.to_pyarrow_dataset()
    scanned = polars.scan_delta(f"{lake}/{table}", storage_options=storage(lake))
    with duckdb.connect() as connection:
        connection.register("rows", dataset)
        (counted,) = connection.execute(f"SELECT count({column}) FROM rows").fetchall()
    return {
        "delta-rs": opened.to_pyarrow_table(columns=[column]).num_rows,
        "polars": scanned.select(column).collect().height,
        "duckdb": counted[0],
        "arrow": dataset.count_rows(),
    }


def count_named(lake: str) -> dict[str, int]:
    """By table: the rows that the manifests say."""
    place = lakes.find(lake)
    parts = [part for manifest in place.manifests() for part in manifest.parts]
    named: Counter[str] = Counter(dict.fromkeys(TABLES, 0))
    for part in parts:
        named[part.table] += part.rows
    found = result_tables.read_newest(place)
    if found is not None:
        named.update(dict.fromkeys(RESULT_TABLES, 0))
        for file in found.files:
            named[file.table] += file.rows
    return dict(named)


def counts_agree(lake: str) -> bool:
    """Every engine counts what the manifests say, in every table."""
    named = count_named(lake)
    return all({*count_rows(lake, table).values()} == {named[table]} for table in named)


def files_agree(lake: str) -> bool:
    """The logs name the files of the manifests, each once."""
    place = lakes.find(lake)
    chain = place.manifests()
    return all(
        sorted(delta_files(lake, table)) == sorted(list_paths(chain, table)) for table in TABLES
    )


def delta_files(lake: str, table: str) -> list[str]:
    actions: Any = pa.table(open_table(lake, table).get_add_actions())
    return [f"{table}/{unquote(path)}" for path in actions["path"].to_pylist()]
