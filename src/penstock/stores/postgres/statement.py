"""Converts the SQL file's named parameters to PostgreSQL's numbered ones."""

import re
from typing import Any, NamedTuple

from penstock.stores.statements import load

# Excludes the second colon of a cast.
NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")


# Excludes FOR UPDATE.
WRITES = re.compile(r"\bINSERT INTO\b|\bDELETE FROM\b|(?<!FOR )\bUPDATE\b|\bCREATE\b")


class PostgresStatement(NamedTuple):
    text: str
    names: tuple[str, ...]

    @property
    def writes(self) -> bool:
        return WRITES.search(self.text) is not None

    def values(self, given: dict[str, Any]) -> list[Any]:
        return [given[name] for name in self.names]


def parse_statement(text: str) -> PostgresStatement:
    names = tuple(dict.fromkeys(NAMED.findall(text)))
    places = {name: f"${place}" for place, name in enumerate(names, 1)}
    return PostgresStatement(NAMED.sub(lambda found: places[found[1]], text), names)


def number_parameters(text: str) -> str:
    """Wraps moment() in a subquery, which runs once per statement instead of per row."""
    return text.replace("penstock.moment()", "(SELECT penstock.moment())")


TEXTS = {
    name: number_parameters(text)
    for name, text in load("penstock.stores.postgres", "statements.sql").items()
}
SQL = {name: parse_statement(text) for name, text in TEXTS.items()}
# The claim statement with each way to pick tickets.
CLAIMS = {
    pick: parse_statement(TEXTS["claim"].replace("/*pick*/", TEXTS[pick]))
    for pick in ("pick_one", "pick_after", "pick_line", "pick_types")
}
