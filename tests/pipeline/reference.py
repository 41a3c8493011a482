"""Writes the data dictionary from the schemas: python -m tests.pipeline.reference."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.pipeline.lake.delta_log import make_result_fields, make_table_fields
from penstock.pipeline.lake.result_tables import RESULT_TABLES
from penstock.pipeline.lake.schema import ADDED_COLUMNS, TABLES, VERSION
from tests.pipeline.dictionary import MEANINGS, Column, columns_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "lake.md"
BEGIN = "<!-- From here on by python -m tests.pipeline.reference -->\n"
HEAD = ["| column | type | unit | null when | example | meaning |", "|---|---|---|---|---|---|"]


def fields() -> dict[str, list[dict[str, Any]]]:
    """The columns of every table, as its Delta log tells them."""
    tables = {str(table): make_table_fields(table) for table in TABLES}
    return {**tables, **{table: make_result_fields(table) for table in RESULT_TABLES}}


def type_name(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "map":
        return f"map<{type_name(kind['keyType'])}, {type_name(kind['valueType'])}>"
    if kind["type"] == "array":
        return f"array<{type_name(kind['elementType'])}>"
    inner = (f"{field['name']}: {type_name(field['type'])}" for field in kind["fields"])
    return f"struct<{', '.join(inner)}>"


def describe(table: str) -> str:
    rows = [
        row_of(field, column)
        for field, column in zip(fields()[table], columns_of(table), strict=True)
    ]
    return "\n".join([f"## {table}", "", MEANINGS[table], "", *HEAD, *rows]) + "\n"


def row_of(field: dict[str, Any], column: Column) -> str:
    assert field["name"] == column.name
    cells = (
        f"`{column.name}`", f"`{type_name(field['type'])}`", column.unit, column.null_when,
        f"`{column.example}`", column.meaning,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def versions() -> Iterator[str]:
    yield "## Versions\n"
    yield "| version | what changed |"
    yield "|---|---|"
    for version in range(VERSION, 1, -1):
        added = [
            f"`{table}` has {' and '.join(f'`{name}`' for name in names)}"
            for table, names in ADDED_COLUMNS[version].items()
        ]
        yield f"| {version} | {'; '.join(added)} |"
    yield "| 1 | the first one |"


def generate() -> str:
    tables = [describe(table) for table in fields()]
    return "\n".join([*tables, *versions()]) + "\n"


def page() -> str:
    head, _, _ = PAGE.read_text().partition(BEGIN)
    return f"{head}{BEGIN}\n{generate()}"


if __name__ == "__main__":
    PAGE.write_text(page())
