"""Reads topology files, TOML or JSON, with the line of each object, and writes them."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from penstock.errors import InvalidInput
from penstock.rules import validation

MAX_OBJECTS = 10_000
# The format of files that this version reads.
FORMAT = 1
TOP_LEVEL = ("name", "default_scope", "format")


class TopologyTable(NamedTuple):
    """One table of a file, and where it is."""

    kind: str
    scope: str
    fields: dict[str, Any]
    place: str


class TopologyFile(NamedTuple):
    name: str
    tables: list[TopologyTable]


def read_topology(given: bytes | str | Mapping[str, Any], kinds: Iterable[str]) -> TopologyFile:
    """Reads TOML or JSON text, or its decoded form. Unknown tables are refused."""
    lines: dict[str, list[int]] = {}
    if not isinstance(given, Mapping):
        text = decode_text(given)
        lines = find_headers(text)
        given = parse_text(text)
    known = list(kinds)
    refuse_unknown_tables(given, known, lines)
    name = given.get("name")
    validation.check_name("topology", name)
    given, scope = split_scope(given)
    if (format := given.get("format", FORMAT)) != FORMAT:
        raise InvalidInput(
            f"format is {validation.clip(format)}; this version of Penstock reads format {FORMAT}"
        )
    tables = [table for kind in known for table in list_tables(given, kind, scope, lines)]
    if len(tables) > MAX_OBJECTS:
        raise InvalidInput(f"{len(tables):,} objects; at most {MAX_OBJECTS:,} are allowed")
    return TopologyFile(str(name), tables)


def split_scope(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Returns the scope of objects that name none: `scope = "x"`, or beside [[scope]] tables
    `default_scope = "x"`."""
    scope = given.get("default_scope", "default")
    if isinstance(given.get("scope"), str):
        scope = given["scope"]
        given = {key: value for key, value in given.items() if key != "scope"}
    validation.check_name("scope", scope)
    return given, scope


def decode_text(given: bytes | str) -> str:
    try:
        return given if isinstance(given, str) else given.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the topology is not valid UTF-8: {error}") from None


def parse_text(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"the topology cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput("the topology must be an object")
    return found


def find_headers(text: str) -> dict[str, list[int]]:
    """Returns the lines of the [[kind]] headers, by kind."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\[\s*([A-Za-z_-]+)\s*\]\]", line)
        if header:
            found.setdefault(header[1], []).append(number)
    return found


def refuse_unknown_tables(
    given: Mapping[str, Any], kinds: list[str], lines: Mapping[str, list[int]]
) -> None:
    for key in given:
        if key not in kinds and key not in TOP_LEVEL:
            near = get_close_matches(key[:100], [*kinds, *TOP_LEVEL], 1)
            known = ", ".join([*TOP_LEVEL, *(f"[[{kind}]]" for kind in kinds)])
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {known}"
            line = f" (line {lines[key][0]})" if key in lines else ""
            raise InvalidInput(f"{key[:100]!r}{line} is unknown; {hint}")


def list_tables(
    given: Mapping[str, Any], kind: str, scope: str, lines: Mapping[str, list[int]]
) -> Iterator[TopologyTable]:
    tables = given.get(kind, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise InvalidInput(f"{kind} must be a list of tables: write [[{kind}]]")
    headers = lines.get(kind, [])
    for number, table in enumerate(tables):
        # A multi-line text may contain what looks like a header.
        line = f" (line {headers[number]})" if len(headers) == len(tables) else ""
        named = table.get("name", table.get("trusted", table.get("queue")))
        shown = f" {validation.clip(named)}" if isinstance(named, str) else ""
        place = f"{kind}[{number + 1}]{shown}{line}"
        own = table.get("scope", scope)
        try:
            validation.check_name("scope", own)
        except InvalidInput as error:
            raise InvalidInput(f"{place}: {error}") from None
        fields = {key: value for key, value in table.items() if key != "scope"}
        yield TopologyTable(kind, own, fields, place)


BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def write_toml(document: Mapping[str, Any]) -> str:
    """Writes plain values first, then every list of tables as [[key]] blocks."""
    lines = [
        f"{write_key(key)} = {write_value(value)}"
        for key, value in document.items()
        if not is_table_list(value)
    ]
    for key, tables in document.items():
        if is_table_list(tables):
            for table in tables:
                lines += ["", f"[[{write_key(key)}]]"]
                lines += [f"{write_key(k)} = {write_value(v)}" for k, v in table.items()]
    return "\n".join(lines) + "\n"


def is_table_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def write_key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else write_text(key)


def write_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return write_text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(write_value, value))}]"
    if isinstance(value, dict):
        fields = ", ".join(f"{write_key(k)} = {write_value(v)}" for k, v in value.items())
        return f"{{ {fields} }}" if fields else "{}"
    raise TypeError(f"{type(value).__name__} cannot be written as TOML")


def write_text(text: str) -> str:
    """JSON escapes are TOML escapes, except for the delete character."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
