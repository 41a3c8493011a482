"""The data dictionary says what the tables are."""

from pathlib import Path
from typing import Any

import pytest

from penstock.model.message import Draft, Verb
from penstock.pipeline.extraction.extract import extract
from penstock.pipeline.lake.schema import ADDED_COLUMNS, TABLES, VERSION
from tests.pipeline.dictionary import MEANINGS, NEVER, TEXTS, columns_of
from tests.pipeline.engines import open_table
from tests.pipeline.reference import PAGE, fields, page
from tests.pipeline.scenes import in_process, on


def nulls_where_never(table: str, rows: Any) -> list[str]:
    """Columns that have nulls, though the dictionary says never."""
    never = [each.name for each in columns_of(table) if each.null_when == NEVER]
    return [name for name in never if rows.column(name).null_count]


def test_the_page_is_what_the_schemas_say() -> None:
    assert PAGE.read_text() == page(), "python -m tests.pipeline.reference"


@pytest.mark.parametrize("table", TEXTS)
def test_every_column_is_described(table: str) -> None:
    columns = columns_of(table)
    assert [each.name for each in columns] == [each["name"] for each in fields()[table]]
    assert all(each.null_when and each.example and each.meaning for each in columns)


def test_every_table_and_version_is_described() -> None:
    assert TEXTS.keys() == MEANINGS.keys() == fields().keys()
    assert ADDED_COLUMNS.keys() == {*range(2, VERSION + 1)}


def test_every_verb_of_history_is_named() -> None:
    (text,) = [each.meaning for each in columns_of("history") if each.name == "verb"]
    assert {*text.removeprefix("Operation: ").rstrip(".").replace(" or ", ", ").split(", ")} == {
        verb.value for verb in Verb if verb is not Verb.PUBLISH
    }


def test_columns_that_are_never_null_have_no_nulls(url: str, lake: Path) -> None:
    """Of messages that say as little as they may."""
    on(url, lambda broker: broker.publish(Draft(queue="mail")))
    extract(in_process(), url, str(lake))
    for table in TABLES:
        rows = open_table(str(lake), table).to_pyarrow_table()
        assert nulls_where_never(table, rows) == []
