"""Writes TOML. The standard library only reads it."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

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
