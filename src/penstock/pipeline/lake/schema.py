"""What a message and a history row look like as a row of a table, in the lake and in Spark."""

from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa

from penstock.errors import InvalidInput

# Every file and every manifest carries it. A reader takes this one and all older ones.
VERSION = 2
VERSION_KEY = b"penstock.schema"

Table = Literal["message", "history"]
TABLES: tuple[Table, ...] = ("message", "history")

MOMENT = pa.timestamp("us", "UTC")
TEXTS = pa.map_(pa.string(), pa.string())
QUEUE = [("queue_id", pa.int64()), ("tenant", pa.string()), ("scope", pa.string()),
         ("queue", pa.string())]  # fmt: skip

MESSAGE = pa.schema([
    ("id", pa.int64()), *QUEUE,
    ("type", pa.string()), ("priority", pa.int64()), ("created_at", MOMENT), ("body", pa.binary()),
    ("content_type", pa.string()), ("name", pa.string()), ("headers", TEXTS), ("labels", TEXTS),
    ("deadline", MOMENT), ("lease", pa.float64()), ("timeout", pa.float64()),
    ("max_attempts", pa.int64()), ("max_deliveries", pa.int64()), ("ordering_key", pa.string()),
    ("dedup", pa.string()), ("correlation_id", pa.string()), ("causation_id", pa.string()),
    ("parent_id", pa.int64()), ("traceparent", pa.string()), ("hops", pa.int64()),
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
# By the version that added them: null in rows that an older version extracted.
ADDED_COLUMNS: dict[int, dict[Table, tuple[str, ...]]] = {
    2: {"message": ("run_at", "expires_at")},
}


def get_table(name: str) -> Table:
    for table in TABLES:
        if name == table:
            return table
    hint = "; penstock.pipeline.joined joins the two" if name == "joined" else ""
    raise InvalidInput(f"no table named {name!r}, only message and history{hint}")


def choose_columns(table: Table, columns: Sequence[str]) -> Any:
    """The schema of these columns, in this order; of all of them if none is named."""
    whole = SCHEMAS[table]
    if unknown := [name for name in columns if name not in whole.names]:
        raise InvalidInput(
            f"{table} has no column named {', '.join(unknown)}; it has {', '.join(whole.names)}"
        )
    return pa.schema([whole.field(name) for name in columns]) if columns else whole


def list_added_columns(table: Table) -> list[str]:
    """Columns that version 1 did not have."""
    return [name for each in ADDED_COLUMNS.values() for name in each.get(table, ())]


def to_spark_schema(schema: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def to_arrow_schema(schema: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def widen_batch(batch: Any, schema: Any) -> Any:
    """A column that an older file does not have is empty."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
