"""The SQL file: every write to a lease carries the fence, every text is fixed and in use."""

import ast
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock import stores
from penstock.model.search import Source
from penstock.stores import statements
from penstock.stores.postgres.transaction import SQL, TEXTS
from penstock.stores.sqlite.transaction import SQL as SQLITE
from tests.postgres.plans import STATEMENTS, connect, prepare
from tests.servers.postgres import Postgres

STORES = Path(stores.__file__).parent
# The code of PostgreSQL's store, and what all stores share.
SHARED = sorted((STORES / "sql").glob("*.py"))
OWN = sorted((STORES / "postgres").glob("*.py"))
CHANGES_LEASE = re.compile(
    r"\b(?:UPDATE|DELETE FROM|MERGE INTO|TRUNCATE)\s+penstock\.lease\b", re.I
)
# Of a statement that changes a lease, what says which one: itself, or the lock that it takes first.
OWN_CONDITION = re.compile(r"WHERE (l\.id BETWEEN asked\.id AND asked\.id [^()]*?)\s+RETURNING")
LOCKED = re.compile(
    r"SELECT [^()]*? FROM penstock\.lease\s+WHERE ([^()]*?)\s+FOR UPDATE SKIP LOCKED\)", re.DOTALL
)
EQUALS_FENCE = re.compile(r"\bfence = (?:asked\.fence|:fence)")
# Whether the row it changes is the one it locked.
BY_LOCKED = re.compile(r"\bctid = (?:ANY \(ARRAY\(|held\.place)|\bid = \(SELECT id FROM")
# Beginnings of names that are put together, and their ends.
ENDS = {
    "take_some_": ("ready", "scheduled", "dead"),
    "prune_": ("history", "message", "name", "result", "step", "signal", "edge", "hold"),
    "copy_": ("ready", "scheduled", "lease", "dead"),
    "flag_awaited_": ("ready", "scheduled", "lease", "dead"),
    "search_": tuple(Source),
}
PUT_TOGETHER = {start + end for start, ends in ENDS.items() for end in ends}
# It marks the message that others wait for, under any lease.
UNFENCED = {"flag_awaited_lease"}
CHANGING_LEASES = sorted(
    name for name, text in TEXTS.items() if CHANGES_LEASE.search(text) and name not in UNFENCED
)


def test_the_statements_that_change_leases_are_found() -> None:
    assert {"complete", "settle", "settle_many", "extend_many", "begin"} < set(CHANGING_LEASES)


@pytest.mark.parametrize("name", CHANGING_LEASES)
def test_a_statement_that_changes_a_lease_checks_its_fence(name: str) -> None:
    text = TEXTS[name]
    own, locked = OWN_CONDITION.findall(text), LOCKED.findall(text)
    (condition,) = own + locked
    assert EQUALS_FENCE.search(condition)
    assert len(CHANGES_LEASE.findall(text)) == 1
    assert own or BY_LOCKED.search(text)


def test_no_statement_gives_a_lease_another_fence() -> None:
    assert [n for n, text in TEXTS.items() if re.search(r"SET [^;]*?\bfence =", before(text))] == []


def before(text: str) -> str:
    """A statement up to its condition."""
    return re.split(r"\bWHERE\b", text)[0]


def test_a_lease_is_never_written_over() -> None:
    inserts = {name: text for name, text in TEXTS.items() if "INTO penstock.lease" in text}
    assert inserts.keys() == {"claim", "claim_dead"}
    assert [name for name, text in inserts.items() if "ON CONFLICT" in text] == []


def test_leases_are_changed_in_the_sql_file_only() -> None:
    sources = [*SHARED, *OWN]
    assert [path.name for path in sources if CHANGES_LEASE.search(path.read_text())] == []


WAITS = re.compile(r"FOR (?:NO KEY )?UPDATE(?!(?: OF \w+)? SKIP LOCKED)")
TAKES = re.compile(r"DELETE FROM penstock\.(?:ready|scheduled|dead|lease) WHERE ctid = ANY")


def test_no_lock_on_a_row_is_waited_for() -> None:
    assert [name for name, text in TEXTS.items() if WAITS.search(text)] == []


def test_what_is_taken_as_a_set_is_locked_first() -> None:
    taken = {name: text for name, text in TEXTS.items() if TAKES.search(text)}
    parts = {name: text.replace("/*pick*/", TEXTS["pick_one"]) for name, text in taken.items()}
    assert len(taken) > 7
    assert [name for name, text in parts.items() if "FOR UPDATE SKIP LOCKED" not in text] == []


def test_no_statement_notifies_within_the_transaction_that_writes() -> None:
    told = {name for name, text in TEXTS.items() if re.search("notify", text, re.I)}
    assert told == {"notify"}
    assert not re.search(r"TRIGGER|notify", schema(), re.I)


def schema() -> str:
    return "".join(path.read_text() for path in (STORES / "postgres" / "migrations").glob("*.sql"))


def test_every_statement_can_be_prepared(postgres_server: Postgres, template: str) -> None:
    with closing(connect(postgres_server.url(template))) as connection:
        for name in STATEMENTS:
            prepare(connection, name)


def test_every_name_is_given_once() -> None:
    loaded = set(statements.load("penstock.stores.postgres", "penstock."))
    for folder in ("sql", "postgres"):
        text = (STORES / folder / "statements.sql").read_text()
        names = re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)
        assert sorted(names) == sorted(set(names))
        assert set(names) <= loaded


def test_every_statement_is_one_statement() -> None:
    assert [n for n, text in TEXTS.items() if ";" in re.sub(r"'[^']*'|--.*", "", text)] == []


def test_every_insert_names_its_columns() -> None:
    inserts = [(name, text) for name, text in TEXTS.items() if "INSERT" in text]
    named = re.compile(r"INTO penstock\.\w+\s+\([\w, \n]+\)")
    assert [n for n, text in inserts if len(named.findall(text)) != text.count("INSERT")] == []


def test_every_table_is_named_with_its_schema() -> None:
    tables = re.findall(r"^CREATE TABLE penstock\.(\w+)", schema(), re.MULTILINE)
    bare = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE) (?:{'|'.join(tables)})\b(?! \()")
    named = re.compile(r"^\s*(\w+) AS (?:MATERIALIZED )?\(|WITH (\w+) AS", re.MULTILINE)
    assert [
        name
        for name, text in TEXTS.items()
        if set(bare.findall(text)) - {word for words in named.findall(text) for word in words}
    ] == []


def nodes(paths: list[Path]) -> Iterator[ast.AST]:
    for path in paths:
        yield from ast.walk(ast.parse(path.read_text()))


def calls(paths: list[Path], *methods: str) -> Iterator[ast.expr]:
    """What calls of these methods are given first."""
    for node in nodes(paths):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in methods and node.args:
            yield node.args[0]


def find_asked(paths: list[Path]) -> set[str]:
    """The statements that are asked for by name."""
    texts = calls(paths, "one", "all", "run", "fetch")
    found = {str(text.value) for text in texts if isinstance(text, ast.Constant)}
    return {name for name in found if name.isidentifier()}


def test_every_statement_is_used() -> None:
    used = {node.value for node in nodes([*SHARED, *OWN]) if isinstance(node, ast.Constant)}
    assert TEXTS.keys() - used - PUT_TOGETHER == set()


def test_every_statement_that_is_asked_for_exists() -> None:
    names = find_asked([*SHARED, *OWN])
    assert len(names) > len(TEXTS) / 2
    assert (names | PUT_TOGETHER) - TEXTS.keys() == OF_FILES


# What only other engines ask the shared moves for, and what only servers are asked for.
OF_FILES = {"extend", "lease_read", "schedule_move"}
# SQLite has no open transactions whose rows come later than those of others.
OWN_VALUES = {"recent"}
OF_SERVERS = {"any_ready", "due_when", "leases_expired", "look_when", "steps_dated"}


def test_what_the_shared_moves_ask_for_exists_in_every_engine() -> None:
    names = find_asked(SHARED) | PUT_TOGETHER
    assert names - SQLITE.keys() == OF_SERVERS
    assert names - SQL.keys() == OF_FILES


def test_a_shared_statement_is_given_the_same_values_in_every_engine() -> None:
    both = ((find_asked(SHARED) | PUT_TOGETHER) & SQL.keys() & SQLITE.keys()) - OWN_VALUES
    given = re.compile(r"(?<![:\w]):([a-z_]+)")
    assert {name: set(SQL[name].names) for name in both} == {
        name: set(given.findall(SQLITE[name])) for name in both
    }
