"""Schemas of the message and history tables."""

from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.model.fields import FIELDS
from penstock.model.message import Meta

# Stored in every file and manifest. Readers accept this version and all older ones.
VERSION = 2
VERSION_KEY = b"penstock.schema"

Table = Literal["message", "history"]
TABLES: tuple[Table, ...] = ("message", "history")

MOMENT = pa.timestamp("us", "UTC")
TEXTS = pa.map_(pa.string(), pa.string())
# Version 1 of the lake is older than callbacks, and they are no column of it.
META_COLUMNS = tuple(
    name for name in FIELDS if name in Meta.__struct_fields__ and name != "callback"
)
ARROW_TYPES = {"text": pa.string(), "dedup": pa.string(), "texts": TEXTS, "whole": pa.int64(),
               "number": pa.float64(), "moment": MOMENT}  # fmt: skip
QUEUE = [("queue_id", pa.int64()), ("tenant", pa.string()), ("scope", pa.string()),
         ("queue", pa.string())]  # fmt: skip

MESSAGE = pa.schema([
    ("id", pa.int64()), *QUEUE,
    ("type", pa.string()), ("priority", pa.int64()), ("created_at", MOMENT), ("body", pa.binary()),
    *((name, ARROW_TYPES[FIELDS[name].kind]) for name in META_COLUMNS),
    ("run_at", MOMENT), ("expires_at", MOMENT),
])  # fmt: skip
HISTORY = pa.schema([
    ("position", pa.int64()), ("id", pa.int64()), *QUEUE,
    ("verb", pa.string()), ("state", pa.string()), ("reason", pa.string()), ("error", pa.string()),
    ("attempts", pa.int64()), ("deliveries", pa.int64()), ("consumer", pa.string()),
    ("fence", pa.int64()), ("claimed_at", MOMENT), ("at", MOMENT), ("due_at", MOMENT),
    ("final", pa.bool_()),
])  # fmt: skip
SCHEMAS = {"message": MESSAGE, "history": HISTORY}
# Columns by the version that added them; null in rows of older versions.
ADDED_COLUMNS: dict[int, dict[Table, tuple[str, ...]]] = {2: {"message": ("run_at", "expires_at")}}


def get_table(name: str) -> Table:
    for table in TABLES:
        if name == table:
            return table
    hint = "; use penstock.pipeline.join_tables to join the two" if name == "joined" else ""
    raise InvalidInput(f"unknown table {name!r}; expected one of message and history{hint}")


def choose_columns(table: Table, columns: Sequence[str]) -> Any:
    """Returns the schema of the given columns in this order, or of all."""
    whole = SCHEMAS[table]
    if unknown := [name for name in columns if name not in whole.names]:
        raise InvalidInput(
            f"unknown column {', '.join(unknown)} of {table};"
            f" expected one of {', '.join(whole.names)}"
        )
    return pa.schema([whole.field(name) for name in columns]) if columns else whole


def list_added_columns(table: Table) -> list[str]:
    """Lists columns that version 1 did not have."""
    return [name for each in ADDED_COLUMNS.values() for name in each.get(table, ())]


def to_spark_schema(schema: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def to_arrow_schema(schema: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def widen_batch(batch: Any, schema: Any) -> Any:
    """Adds nulls for columns that an older file lacks."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
