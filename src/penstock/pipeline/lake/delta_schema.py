"""Converts table schemas to Delta schemas."""

from typing import Any

import pyarrow as pa

from penstock.pipeline.analytics.tables import SCHEMAS as RESULT_SCHEMAS
from penstock.pipeline.analytics.tables import split
from penstock.pipeline.lake.results import ResultTable
from penstock.pipeline.lake.schema import SCHEMAS, Table

PLAIN = {"bigint": "long", "int": "integer"}


def make_table_fields(table: Table) -> list[dict[str, Any]]:
    return [make_field(field.name, from_arrow_type(field.type)) for field in SCHEMAS[table]]


def make_result_fields(table: ResultTable) -> list[dict[str, Any]]:
    columns = [column.split(maxsplit=1) for column in split(RESULT_SCHEMAS[table])]
    return [
        *(make_field(name, from_ddl_type(kind)) for name, kind in columns),
        make_field("day", "date"),
    ]


def make_field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def from_arrow_type(kind: Any) -> Any:
    if pa.types.is_map(kind):
        key, value = from_arrow_type(kind.key_type), from_arrow_type(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pa.types.is_timestamp(kind):
        return "timestamp"
    names = {
        pa.int64(): "long", pa.float64(): "double", pa.bool_(): "boolean",
        pa.string(): "string", pa.binary(): "binary",
    }  # fmt: skip
    return names[kind]


def from_ddl_type(kind: str) -> Any:
    """Converts a Spark DDL type: a plain one, or an array of structs."""
    name, _, inner = kind.strip().removesuffix(">").partition("<")
    if name == "array":
        return {"type": "array", "elementType": from_ddl_type(inner), "containsNull": True}
    if name == "struct":
        pairs = (column.split(":", maxsplit=1) for column in split(inner))
        return {
            "type": "struct",
            "fields": [make_field(each, from_ddl_type(of)) for each, of in pairs],
        }
    return PLAIN.get(name, name)
