"""Infers a JSON Schema from sample values."""

from collections.abc import Iterable, Sequence
from typing import Any

MAX_PROPERTIES = 200
MAX_DEPTH = 16
TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def infer_schema(samples: Sequence[Any], depth: int = 0) -> dict[str, Any]:
    """Returns a schema that every sample fits. It names types and fields, and no values."""
    types = {name_json_type(each) for each in samples}
    if "number" in types:
        types.discard("integer")
    if not types or depth >= MAX_DEPTH:
        return {}
    schema: dict[str, Any] = {"type": sorted(types) if len(types) > 1 else next(iter(types))}
    objects = [each for each in samples if isinstance(each, dict)]
    items = [item for each in samples if isinstance(each, list) for item in each]
    if objects:
        schema |= infer_properties(objects, depth + 1)
    if items:
        schema["items"] = infer_schema(items, depth + 1)
    return schema


def infer_properties(objects: Sequence[dict[str, Any]], depth: int) -> dict[str, Any]:
    names = list_keys(objects)
    if len(names) > MAX_PROPERTIES:
        # The keys are data, as in a map from ids to values.
        values = [value for each in objects for value in each.values()]
        return {"additionalProperties": infer_schema(values, depth)}
    properties = {
        name: infer_schema([each[name] for each in objects if name in each], depth)
        for name in names
    }
    required = [name for name in names if all(name in each for each in objects)]
    return {"properties": properties, **({"required": required} if required else {})}


def list_keys(objects: Iterable[dict[str, Any]]) -> list[str]:
    """Lists the keys of all objects in the order of their first appearance."""
    return list(dict.fromkeys(key for each in objects for key in each))


def name_json_type(value: Any) -> str:
    return next((name for kind, name in TYPES if isinstance(value, kind)), "null")
