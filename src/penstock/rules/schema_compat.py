"""Compares two versions of a schema, field by field.

The version that messages are written under is closed: its objects have no fields beyond those it
lists. Consumers ignore fields that they do not know. So a new optional field breaks no one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.extras import require_extra
from penstock.model.schemas import Compatibility
from penstock.rules.schema_cost import escape

if TYPE_CHECKING:
    from jsonschema_rs import CanonicalSchema

MAX_BREAKS = 20
MAX_VALUES_LENGTH = 200
# Keywords that say nothing about which values fit.
ANNOTATIONS = frozenset(
    ("$schema", "$id", "$defs", "definitions", "$comment", "title", "description", "default",
     "examples", "deprecated", "readOnly", "writeOnly")
)  # fmt: skip
OBJECT_KEYWORDS = frozenset(("type", "properties", "required", "additionalProperties"))
ARRAY_KEYWORDS = frozenset(("type", "items"))
# Inside these, closing an object would refuse the fields of the other parts.
COMBINING = ("allOf", "if", "dependentSchemas", "$ref", "$dynamicRef", "not", "patternProperties",
             "unevaluatedProperties")  # fmt: skip


class FieldBreak(Struct, frozen=True):
    """A field whose values one version writes and the other does not accept."""

    pointer: str
    text: str


class Comparison(Struct, frozen=True):
    """Fields that break, and fields for which no proof was found either way."""

    breaks: tuple[FieldBreak, ...] = ()
    unproven: tuple[str, ...] = ()


def compare_versions(old: Any, new: Any, mode: Compatibility) -> Comparison:
    """Backward: the new version accepts what the old one wrote. Forward: the reverse."""
    old, new = inline_references(old), inline_references(new)
    breaks: list[FieldBreak] = []
    unproven: list[str] = []
    pairs = []
    if mode in ("backward", "full"):
        pairs.append((new, old, "the new version", "the old one"))
    if mode in ("forward", "full"):
        pairs.append((open_objects(old), new, "the old version", "the new one"))
    for reader, writer, *names in pairs:
        for found in compare(reader, writer, "", *names):
            if isinstance(found, str):
                unproven.append(found)
            else:
                breaks.append(found)
    return Comparison(tuple(breaks[:MAX_BREAKS]), tuple(unproven[:MAX_BREAKS]))


def inline_references(schema: Any) -> Any:
    """Replaces local references, so that fields can be walked. Cycles stay as they are."""
    with require_extra("schemas"):
        import jsonschema_rs
    return jsonschema_rs.dereference(schema, offline=True)


def compare(
    reader: Any, writer: Any, pointer: str, reads: str, writes: str
) -> Iterator[FieldBreak | str]:
    """Yields breaks, and the pointers of fields that are not proven."""
    if reader is True or strip(reader) == {} or strip(reader) == strip(writer):
        return
    if is_plain(reader, "object", OBJECT_KEYWORDS) and is_plain(writer, "object", OBJECT_KEYWORDS):
        yield from compare_objects(reader, writer, pointer, reads, writes)
    elif is_plain(reader, "array", ARRAY_KEYWORDS) and is_plain(writer, "array", ARRAY_KEYWORDS):
        items = reader.get("items", True), writer.get("items", True)
        yield from compare(*items, f"{pointer}/*", reads, writes)
    else:
        yield from compare_values(reader, writer, pointer, reads, writes)


def compare_objects(
    reader: Any, writer: Any, pointer: str, reads: str, writes: str
) -> Iterator[FieldBreak | str]:
    written = writer.get("properties", {})
    read = reader.get("properties", {})
    for name in sorted({*reader.get("required", ())} - {*writer.get("required", ())}):
        text = f"{reads} requires it, and {writes} does not"
        yield FieldBreak(f"{pointer}/{escape(name)}", text)
    others = reader.get("additionalProperties", True)
    for name, part in written.items():
        yield from compare(read.get(name, others), part, f"{pointer}/{escape(name)}", reads, writes)
    free = writer.get("additionalProperties", False)
    if free is False:
        return
    for name, part in read.items():
        if name not in written:
            yield from compare(part, free, f"{pointer}/{escape(name)}", reads, writes)
    yield from compare(others, free, f"{pointer}/*", reads, writes)


def compare_values(
    reader: Any, writer: Any, pointer: str, reads: str, writes: str
) -> Iterator[FieldBreak | str]:
    with require_extra("schemas"):
        from jsonschema_rs.canonical import Containment
    certain = not any(combines(each) for each in (reader, writer))
    try:
        given = canonicalize(close_objects(writer) if certain else writer)
        taken = canonicalize(reader)
        answer = taken.covers(given)
    except ValueError:
        yield pointer
        return
    if answer == Containment.YES:
        return
    if answer == Containment.NO and certain:
        values = describe_values(given, taken)
        yield FieldBreak(pointer, f"{reads} does not accept {values}, which {writes} allows")
    else:
        yield pointer


def canonicalize(schema: Any) -> "CanonicalSchema":
    import jsonschema_rs

    return jsonschema_rs.canonicalize(schema, offline=True, validate_formats=True)


def describe_values(given: "CanonicalSchema", taken: "CanonicalSchema") -> str:
    """Describes the values that are no longer accepted, as a schema."""
    try:
        rest = strip(given.subtract(taken).to_json_schema())
    except ValueError:
        return "some values"
    text = msgspec.json.encode(rest).decode()
    shown = text if len(text) <= MAX_VALUES_LENGTH else f"{text[: MAX_VALUES_LENGTH - 3]}..."
    return f"values that fit {shown}"


def strip(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {key: value for key, value in schema.items() if key not in ANNOTATIONS}


def is_plain(schema: Any, type: str, keywords: frozenset[str]) -> bool:
    """True if the schema is of this type and has only keywords that can be walked."""
    return (
        isinstance(schema, dict) and schema.get("type") == type and strip(schema).keys() <= keywords
    )


def combines(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(combines, schema))
    if not isinstance(schema, dict):
        return False
    return any(key in schema for key in COMBINING) or any(map(combines, schema.values()))


def close_objects(schema: Any) -> Any:
    """Forbids fields that an object does not list, unless it says otherwise."""
    if isinstance(schema, list):
        return [close_objects(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: close_objects(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        closed["additionalProperties"] = False
    return closed


def open_objects(schema: Any) -> Any:
    """Allows fields that an object does not list, as consumers do."""
    if isinstance(schema, list):
        return [open_objects(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: open_objects(value)
        for key, value in schema.items()
        if not (key in ("additionalProperties", "unevaluatedProperties") and value is False)
    }
