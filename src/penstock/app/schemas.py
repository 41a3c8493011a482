"""Exports JSON Schemas of tasks, msgspec structs, dataclasses and pydantic models."""

from typing import Any

import msgspec

from penstock.app.task import BaseTask
from penstock.errors import InvalidInput


def export_schema(source: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a task's arguments, or of a type."""
    kind = source.arguments.struct if isinstance(source, BaseTask) else source
    named = f"task {source.name!r}" if isinstance(source, BaseTask) else repr(source)
    if hasattr(kind, "model_json_schema"):
        schema: dict[str, Any] = kind.model_json_schema()
        return schema
    definitions: dict[str, Any] = {}

    def describe_model(kind: type) -> dict[str, Any]:
        if not hasattr(kind, "model_json_schema"):
            raise NotImplementedError(f"{kind.__name__} has no JSON Schema")
        model: dict[str, Any] = kind.model_json_schema()
        # Its references start at the root of the document.
        definitions.update(model.pop("$defs", {}))
        return model

    try:
        schema = msgspec.json.schema(kind, schema_hook=describe_model)
    except (TypeError, NotImplementedError) as error:
        raise InvalidInput(f"{named[:200]} has no JSON Schema: {error}") from None
    if definitions:
        schema["$defs"] = {**schema.get("$defs", {}), **definitions}
    return schema
