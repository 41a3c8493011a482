"""The statements of MariaDB, with values as the text of the statement."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from penstock.stores.statements import load
from penstock.ticket import Completion, Extension, Lock, Move

Value: TypeAlias = int | float | bool | str | bytes | None
NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")
# What a quoted text may hold whatever the session's sql_mode and character set are.
PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")


class Raw(str):
    """A piece of a statement that was made of values already."""

    __slots__ = ()


def literal(value: Any) -> str:
    kind = type(value)
    if kind is int:
        return str(value)
    if value is None:
        return "NULL"
    if kind is str:
        return quoted(value)
    if kind is bytes:
        return f"x'{value.hex()}'"
    return literal_of_others(value)


def literal_of_others(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, list | tuple):
        return listed(value)
    if isinstance(value, str):
        return quoted(str(value))
    return repr(int(value) if isinstance(value, bool) else value)


def quoted(text: str) -> str:
    return f"'{text}'" if PLAIN.fullmatch(text) else f"_utf8mb4 x'{text.encode().hex()}'"


def listed(values: Sequence[Any]) -> str:
    """For IN, which wants at least one."""
    return ",".join(map(literal, values)) if values else "NULL"


def array(numbers: Iterable[int]) -> str:
    """For json_table."""
    return f"[{','.join(map(str, sorted(numbers)))}]"


def tuples(rows: Sequence[Sequence[Any]]) -> Raw:
    """For IN of rows, and for VALUES."""
    return Raw(",".join(f"({listed(row)})" for row in rows))


def locks_of(items: Sequence[Completion | Extension | Lock | Move]) -> Raw:
    """Each of them, by its fence: few were claimed at a time that the others were not."""
    ids: dict[int, list[int]] = {}
    for item in items:
        ids.setdefault(item.fence, []).append(item.id)
    return Raw(
        " OR ".join(
            f"fence = {fence} AND id IN ({listed(sorted(some))})" for fence, some in ids.items()
        )
    )


class Statement:
    __slots__ = ("names", "pieces")

    def __init__(self, text: str) -> None:
        pieces = NAMED.split(text)
        # Texts and names by turns.
        self.names = pieces[1::2]
        self.pieces = pieces[::2]

    def filled(self, values: dict[str, Any]) -> str:
        filled = [self.pieces[0]]
        for name, piece in zip(self.names, self.pieces[1:], strict=True):
            filled.append(literal(values[name]))
            filled.append(piece)
        return "".join(filled)


# They would travel with every packet.
COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
SQL = {
    name: Statement(COMMENT.sub("", text))
    for name, text in load("penstock.stores.mariadb", "statements.sql").items()
}


def text_of(statement: str, /, **values: Any) -> str:
    return SQL[statement].filled(values)
