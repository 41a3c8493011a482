"""The statements of PostgreSQL: named values become numbered ones."""

import re
from typing import Any, NamedTuple

from penstock.stores.statements import load

# Not the second colon of a cast.
NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")


class Statement(NamedTuple):
    text: str
    names: tuple[str, ...]

    def values(self, given: dict[str, Any]) -> list[Any]:
        return [given[name] for name in self.names]


def statement(text: str) -> Statement:
    names = tuple(dict.fromkeys(NAMED.findall(text)))
    places = {name: f"${place}" for place, name in enumerate(names, 1)}
    return Statement(NAMED.sub(lambda found: places[found[1]], text), names)


TEXTS = load("penstock.stores.postgres", "statements.sql")
SQL = {name: statement(text) for name, text in TEXTS.items()}
# A claim with each way to pick.
CLAIMS = {
    pick: statement(TEXTS["claim"].replace("/*pick*/", TEXTS[pick]))
    for pick in ("pick_one", "pick_line", "pick_types")
}
