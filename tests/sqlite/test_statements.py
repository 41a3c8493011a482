"""The SQL file: every write to a lease carries the fence, every text is fixed and in use."""

import ast
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock import stores
from penstock.model.search import Source
from penstock.stores import statements
from penstock.stores.sql.copying import COLUMNS
from penstock.stores.sqlite.connection import connect, set_up
from penstock.stores.sqlite.database import read_system_clock
from penstock.stores.sqlite.publish import CHUNKS, INSERTS, INSERTS_UNIFORM, ROW
from penstock.stores.sqlite.transaction import SQL
from tests.sqlite.plans import parameters

STORES = Path(stores.__file__).parent
# The code of SQLite's store, and what all stores share.
SOURCES = sorted(
    path for folder in (".", "sql", "sqlite") for path in (STORES / folder).glob("*.py")
)
CHANGES_LEASE = re.compile(
    r"\b(UPDATE(?: OR \w+)?|DELETE FROM|REPLACE INTO)\s+penstock_lease\b", re.I
)
# Of a statement that changes a lease, what says which one.
CONDITION = re.compile(r"\bWHERE\b(.*?)(?:\bRETURNING\b|\Z)", re.I | re.DOTALL)
EQUALS_FENCE = re.compile(r"\bfence = (?:\?|:fence)|\(id, fence\) IN \(SELECT \w")
# Changes of leases that need no fence. None does.
# It marks the message that others wait for, under any lease.
UNFENCED = frozenset({"flag_awaited_lease"})
# Beginnings of names that are put together, and their ends.
ENDS = {
    "take_some_": ("ready", "scheduled", "dead"),
    "prune_": ("history", "message", "name", "result", "step", "signal", "edge", "hold"),
    "copy_": ("ready", "scheduled", "lease", "dead"),
    "flag_awaited_": ("ready", "scheduled", "lease", "dead"),
    "search_": tuple(Source),
}
PUT_TOGETHER = {start + end for start, ends in ENDS.items() for end in ends}
# Asked for by the name of their table.
RESTORED = {f"restore_{table}" for table in COLUMNS}


@pytest.fixture(scope="module")
def db() -> Iterator[sqlite3.Connection]:
    with closing(connect(":memory:", "safe")) as db:
        set_up(db, read_system_clock, "safe")
        yield db


CHANGING_LEASES = sorted(name for name, text in SQL.items() if CHANGES_LEASE.search(text))


def test_the_statements_that_change_leases_are_found() -> None:
    assert {"complete_remove", "settle", "extend", "begin", "progress"} < set(CHANGING_LEASES)


@pytest.mark.parametrize("name", CHANGING_LEASES)
def test_a_statement_that_changes_a_lease_checks_its_fence(name: str) -> None:
    condition = CONDITION.search(SQL[name])
    assert condition is not None
    assert name in UNFENCED or EQUALS_FENCE.search(condition.group(1))


def test_no_statement_gives_a_lease_another_fence() -> None:
    assert [
        name for name in CHANGING_LEASES if re.search(r"SET [^;]*\bfence =", before(SQL[name]))
    ] == []


def before(text: str) -> str:
    """A statement up to its condition."""
    return re.split(r"\bWHERE\b", text)[0]


def test_a_lease_is_never_written_over() -> None:
    inserts = [text for text in SQL.values() if re.search(r"INTO penstock_lease\b", text)]
    assert len(inserts) == 3
    assert not [text for text in inserts if re.search(r"\bOR\b|ON CONFLICT|REPLACE", text)]


def test_leases_are_changed_in_the_sql_file_only() -> None:
    assert [path.name for path in SOURCES if CHANGES_LEASE.search(path.read_text())] == []


def test_every_statement_can_be_prepared(db: sqlite3.Connection) -> None:
    for text in SQL.values():
        db.execute(f"EXPLAIN {text}", parameters(text))


def test_every_name_is_given_once() -> None:
    loaded = set(statements.load("penstock.stores.sqlite"))
    for folder in ("sql", "sqlite"):
        text = (STORES / folder / "statements.sql").read_text()
        names = re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)
        assert sorted(names) == sorted(set(names))
        assert set(names) <= loaded


def test_every_statement_is_one_statement() -> None:
    assert [name for name, text in SQL.items() if ";" in re.sub(r"'[^']*'|--.*", "", text)] == []


def test_every_insert_names_its_columns() -> None:
    inserts = {name: text for name, text in SQL.items() if "INSERT" in text}
    assert [
        n for n, text in inserts.items() if not re.search(r"INTO \w+\s+\([\w, \n]+\)", text)
    ] == []


def nodes() -> Iterator[ast.AST]:
    """All the code of the stores."""
    for path in SOURCES:
        yield from ast.walk(ast.parse(path.read_text()))


def calls(*methods: str) -> Iterator[ast.expr]:
    """What calls of these methods are given first."""
    for node in nodes():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in methods and node.args:
            yield node.args[0]


def read_fixed(text: ast.JoinedStr) -> str:
    """The fixed beginning of a text with something pasted in."""
    first = text.values[0]
    return str(first.value) if isinstance(first, ast.Constant) else ""


def test_no_statement_is_assembled_from_values() -> None:
    texts = list(calls("execute", "executemany", "executescript"))
    assembled = [read_fixed(text) for text in texts if isinstance(text, ast.JoinedStr)]
    # Only pragmas, which cannot be bound; what they are given is ours.
    assert [text for text in assembled if not text.startswith("PRAGMA ")] == []
    # Otherwise a literal, a name, or a statement by its name: no sum, no format, no call.
    kinds = {type(text) for text in texts} - {ast.JoinedStr}
    assert kinds == {ast.Constant, ast.Name, ast.Subscript}


def test_a_bulk_insert_differs_from_a_single_one_by_its_rows_only() -> None:
    assert set(INSERTS) == set(CHUNKS)
    for size, text in INSERTS.items():
        assert text.replace(", ".join([ROW] * size), ROW) == SQL["publish_message"]
        assert text.count("?") == size * ROW.count("?")
        assert re.sub(r"\?\d+", "?", INSERTS_UNIFORM[size]) == text


def test_every_statement_is_used() -> None:
    used = {node.value for node in nodes() if isinstance(node, ast.Constant)}
    made = {
        read_fixed(text) for text in calls("all", "one", "run") if isinstance(text, ast.JoinedStr)
    }
    assert made == ENDS.keys()
    assert SQL.keys() - used - PUT_TOGETHER - RESTORED == set()


def test_every_statement_that_is_asked_for_exists() -> None:
    texts = list(calls("one", "all", "run"))
    asked = {text.value for text in texts if isinstance(text, ast.Constant)}
    assert len(asked) > len(SQL) / 2
    assert not (asked | PUT_TOGETHER) - SQL.keys()
