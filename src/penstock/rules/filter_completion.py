"""Completes filters: what may follow at a position of an unfinished filter."""

import re
from collections.abc import Callable, Iterable

from msgspec import Struct

from penstock.errors import InvalidInput
from penstock.rules import filter_parser
from penstock.rules.filter_parser import FIELDS, MAX_CHARACTERS, OPERATOR, STATES

MAX_ITEMS = 50
# A word of a filter up to the position; quotes may contain spaces.
WORD = re.compile(r'(?:[^\s()"]|"(?:[^"\\]|\\.)*"|"(?:[^"\\]|\\.)*$)*$', re.DOTALL)
BARE = re.compile(r"[^\s,()\"*]+")
TIMES = ("today", "yesterday", "now", "-1h", "-1d")
EXAMPLES = {"age": ("10m", "1h", "1d"), "wait": ("10s", "1m", "10m")}
# Returns known values of a field; more than those that begin with the text are fine.
FindValues = Callable[[str, str], Iterable[str]]


class FilterSuggestion(Struct, frozen=True):
    """Texts that may replace the filter from `start` to the position."""

    start: int
    items: list[str]


def complete(text: str, position: int, find_values: FindValues) -> FilterSuggestion:
    """Completes the word before the position."""
    if not 0 <= position <= len(text) <= MAX_CHARACTERS:
        raise InvalidInput(
            f"position {position} is not in the filter, which has at most {MAX_CHARACTERS:,}"
            " characters"
        )
    found = WORD.search(text, 0, position)
    word = found[0] if found else ""
    sign = len(word) - len(word.lstrip("-"))
    start = position - len(word) + sign
    operator = OPERATOR.search(word)
    if operator is None:
        return FilterSuggestion(start, complete_field(word[sign:]))
    field = word[sign : operator.start()]
    # The last value of a list.
    value_at = max(operator.end(), word.rfind(",", operator.end()) + 1)
    typed = word[value_at:].lstrip('"')
    known = list_values(field, typed, find_values)
    items = [quote(value) for value in known if value.startswith(typed) and value != typed]
    return FilterSuggestion(position - len(word) + value_at, items[:MAX_ITEMS])


def complete_field(typed: str) -> list[str]:
    """A field is completed with its operator, or with the dot before its key."""
    names = [name if name.endswith(".") else f"{name}:" for name in FIELDS]
    return [name for name in names if name.startswith(typed) and name != typed]


def list_values(field: str, typed: str, find_values: FindValues) -> list[str]:
    name = {"worker": "consumer"}.get(field, field)
    if name == "state":
        return list(STATES)
    if name in filter_parser.TIMES:
        return list(TIMES)
    return sorted(set(EXAMPLES.get(name, ())) | set(find_values(name, typed)))


def quote(value: str) -> str:
    """Quotes a value that a filter would not take as one."""
    if BARE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
