"""Writes the table of message fields from the model: python -m tests.docs.fields."""

from pathlib import Path

from msgspec.structs import fields

from penstock.model.fields import (
    FIELDS,
    MAX_DELAY_S,
    MAX_INTEGER,
    MAX_META_BYTES,
    MAX_WORD_LENGTH,
    Field,
)
from penstock.model.message import Draft

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
BEGIN = "<!-- From here on by python -m tests.docs.fields -->\n"
HEAD = ["| field | type | default | limits | meaning |", "|---|---|---|---|---|"]
DEFAULTS = {each.name: each.default for each in fields(Draft)}
TYPES = {
    "name": "`str`", "text": "`str`", "texts": "`dict[str, str]`", "url": "`str`",
    "bytes": "`bytes`", "whole": "`int`", "number": "`float`", "moment": "`int`",
    "dedup": "`Dedup`",
}  # fmt: skip


def limits(field: Field) -> str:
    most = f"{field.most:,.10g}"
    if field.name == "priority":
        return "`priority_min` to `priority_max` of the queue"
    if field.kind == "number":
        years = field.most == MAX_DELAY_S
        return f"{field.least:g} s to {'10 years' if years else f'{field.most / 3600:g} h'}"
    if field.kind == "whole":
        return f"{field.least} to {most}" if field.most < MAX_INTEGER else f"from {field.least}"
    return {
        "name": f"1 to {most} letters, digits, `.`, `-` and `_`; must not start with `.` or `-`",
        "text": f"{field.least} to {most} characters",
        "url": f"{field.least} to {most} characters",
        "texts": f"keys of 1 to {MAX_WORD_LENGTH} characters, values of up to {most}",
        "dedup": f"key of 1 to {most} characters, window of up to 10 years",
        "bytes": "`max_body` of the queue",
        "moment": "microseconds since 1970",
    }[field.kind]


def row(field: Field) -> str:
    default = f"`{DEFAULTS[field.name]!r}`"
    cells = (f"`{field.name}`", TYPES[field.kind], default, limits(field), field.description)
    return f"| {' | '.join(cells)} |"


def text() -> str:
    head, _, _ = PAGE.read_text().partition(BEGIN)
    rows = "\n".join([*HEAD, *map(row, FIELDS.values())])
    last = (
        f"All fields but the body take at most {MAX_META_BYTES:,} bytes as JSON. Names of scopes"
        " have the limits of names of queues."
    )
    return f"{head}{BEGIN}\n{rows}\n\n{last}\n"


if __name__ == "__main__":
    PAGE.write_text(text())
