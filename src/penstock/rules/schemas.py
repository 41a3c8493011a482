"""Compiles JSON Schemas, and finds where a body does not match one."""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InvalidInput
from penstock.extras import require_extra
from penstock.model.schemas import Mismatch
from penstock.rules.schema_cost import escape, list_children, refuse_exponential
from penstock.rules.validation import clip, replace_surrogates

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

MAX_SCHEMA_BYTES = 262_144
MAX_SCHEMA_DEPTH = 64
# Bounds the automaton of one pattern. Patterns run in linear time.
MAX_PATTERN_BYTES = 262_144
# Compiling a schema holds the interpreter's lock, also in a thread. Almost all of it is patterns.
MAX_PATTERNS = 200
MAX_MISMATCHES = 10
MAX_POINTER_LENGTH = 200
MAX_TEXT_LENGTH = 200
MAX_ERROR_LENGTH = 500
MASK = "the value"
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
decode_json = msgspec.json.Decoder().decode
COUNTLESS = Mismatch(
    "", "schema", "the value fits none of the alternatives; there are too many to name what differs"
)


def parse_schema(text: bytes) -> Any:
    """Decodes a schema within the limits."""
    if len(text) > MAX_SCHEMA_BYTES:
        raise InvalidInput(
            f"the schema has {len(text):,} bytes; at most {MAX_SCHEMA_BYTES:,} are allowed"
        )
    try:
        schema = decode_json(text)
    except NOT_JSON as error:
        raise InvalidInput(f"the schema is not valid JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise InvalidInput("the schema must be a JSON object or a boolean")
    refuse_costly(schema)
    refuse_exponential(schema)
    return schema


def refuse_costly(schema: Any) -> None:
    """Refuses a schema that is nested too deeply, or has too many patterns."""
    level: list[tuple[str, Any]] = [("", schema)]
    patterns = 0
    for _ in range(MAX_SCHEMA_DEPTH):
        level = [child for pointer, value in level for child in list_children(pointer, value)]
        patterns += sum(count_patterns(pointer, value) for pointer, value in level)
    if patterns > MAX_PATTERNS:
        raise InvalidInput(
            f"the schema has {patterns:,} patterns; at most {MAX_PATTERNS:,} are allowed"
        )
    if level:
        pointer = clip_pointer(level[0][0])
        raise InvalidInput(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} at {pointer}")


def count_patterns(pointer: str, value: Any) -> int:
    if pointer.endswith("/pattern"):
        return isinstance(value, str)
    if pointer.endswith("/patternProperties"):
        return len(value) if isinstance(value, dict) else 0
    return 0


def compile_schema(schema: Any) -> "Validator":
    """Compiles a schema. Remote references and patterns that backtrack are refused."""
    with require_extra("schemas"):
        import jsonschema_rs
    try:
        return jsonschema_rs.validator_for(
            schema,
            mask=MASK,
            offline=True,
            validate_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=MAX_PATTERN_BYTES, dfa_size_limit=MAX_PATTERN_BYTES
            ),
        )
    except (jsonschema_rs.ValidationError, ValueError, TypeError) as error:
        raise make_schema_error(error, schema) from None


def make_schema_error(error: Exception, schema: Any) -> InvalidInput:
    """Names the position in the schema, and the part of it that is invalid."""
    path = getattr(error, "instance_path", None) or []
    text = getattr(error, "message", None) or str(error).partition("\n")[0]
    pointer = make_pointer(path)
    if "Retrieval is disabled" in text:
        pointer = find_remote_reference("", schema) or pointer
        text = "the reference leads out of the schema; only references such as #/$defs/x work"
    elif text == f'{MASK} is not a "regex"':
        text = (
            "the pattern is invalid, too large, or needs backtracking (look-around,"
            " back-references)"
        )
    part = clip(find_part(schema, path)) if path else "it"
    said = replace_surrogates(text).replace(MASK, part)[:MAX_ERROR_LENGTH]
    invalid = InvalidInput(f"schema{f' at {pointer}' if pointer else ''}: {said}")
    invalid.details = ((pointer, said),)
    return invalid


def find_remote_reference(pointer: str, schema: Any) -> str | None:
    """Returns the pointer of the first reference that leads out of the schema."""
    for place, value in list_children(pointer, schema):
        if place.endswith(("/$ref", "/$dynamicRef")) and not str(value).startswith("#"):
            return clip_pointer(place)
        if (found := find_remote_reference(place, value)) is not None:
            return found
    return None


def find_part(schema: Any, path: Iterable[str | int]) -> Any:
    for key in path:
        schema = schema[key]
    return schema


def find_mismatches(
    validator: "Validator", body: bytes, *, countless: bool = False
) -> tuple[Mismatch, ...]:
    """Returns the first problems of a body, or nothing if it fits.

    Countless problems are one: listing them would take too long.
    """
    try:
        value = decode_json(body)
    except NOT_JSON:
        return (Mismatch("", "json", "the body is not valid JSON"),)
    if validator.is_valid(value):
        return ()
    if countless:
        return (COUNTLESS,)
    found = islice(validator.iter_errors(value), MAX_MISMATCHES)
    return tuple(make_mismatch(each) for each in found)


def make_mismatch(error: "ValidationError") -> Mismatch:
    text = replace_surrogates(error.message)
    return Mismatch(
        make_pointer(error.instance_path),
        error.kind.name,
        text if len(text) <= MAX_TEXT_LENGTH else f"{text[: MAX_TEXT_LENGTH - 3]}...",
    )


def make_pointer(path: Iterable[str | int]) -> str:
    return clip_pointer("".join(f"/{escape(key)}" for key in path))


def clip_pointer(pointer: str) -> str:
    kept = replace_surrogates(pointer)
    return kept if len(kept) <= MAX_POINTER_LENGTH else f"{kept[: MAX_POINTER_LENGTH - 3]}..."
