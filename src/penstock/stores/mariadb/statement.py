"""Formats MariaDB statements with their values as literals."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from penstock.model.store_types import Completion, Extension, Lock, Move
from penstock.stores.statements import load

Value: TypeAlias = int | float | bool | str | bytes | None
NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")
# Characters that are safe in quotes under any sql_mode and character set.
PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")


class RawSql(str):
    """SQL that is already formatted."""

    __slots__ = ()


def to_literal(value: Any) -> str:
    kind = type(value)
    if kind is int:
        return str(value)
    if value is None:
        return "NULL"
    if kind is str:
        return quote(value)
    if kind is bytes:
        return f"x'{value.hex()}'"
    return to_rare_literal(value)


def to_rare_literal(value: Any) -> str:
    if isinstance(value, RawSql):
        return value
    if isinstance(value, list | tuple):
        return to_in_list(value)
    if isinstance(value, str):
        return quote(str(value))
    return repr(int(value) if isinstance(value, bool) else value)


def quote(text: str) -> str:
    return f"'{text}'" if PLAIN.fullmatch(text) else f"_utf8mb4 x'{text.encode().hex()}'"


def to_in_list(values: Sequence[Any]) -> str:
    """Formats a list for IN, which needs at least one value."""
    return ",".join(map(to_literal, values)) if values else "NULL"


def to_json_array(numbers: Iterable[int]) -> str:
    """Formats values for json_table."""
    return f"[{','.join(map(str, sorted(numbers)))}]"


def to_tuples(rows: Sequence[Sequence[Any]]) -> RawSql:
    """Formats rows for IN and VALUES."""
    return RawSql(",".join(f"({to_in_list(row)})" for row in rows))


def locks_of(items: Sequence[Completion | Extension | Lock | Move]) -> RawSql:
    """Matches the locks grouped by fence, because most were claimed together."""
    ids: dict[int, list[int]] = {}
    for item in items:
        ids.setdefault(item.fence, []).append(item.id)
    return RawSql(
        " OR ".join(
            f"fence = {fence} AND id IN ({to_in_list(sorted(some))})" for fence, some in ids.items()
        )
    )


class MariaStatement:
    __slots__ = ("names", "pieces")

    def __init__(self, text: str) -> None:
        pieces = NAMED.split(text)
        # Alternates text and parameter names.
        self.names = pieces[1::2]
        self.pieces = pieces[::2]

    def fill(self, values: Mapping[str, Any]) -> str:
        filled = [self.pieces[0]]
        for name, piece in zip(self.names, self.pieces[1:], strict=True):
            filled.append(to_literal(values[name]))
            filled.append(piece)
        return "".join(filled)


# Comments would be sent with every packet.
COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
SQL = {
    name: MariaStatement(COMMENT.sub("", text))
    for name, text in load("penstock.stores.mariadb").items()
}


def fill_statement(statement: str, /, **values: Any) -> str:
    return SQL[statement].fill(values)
