"""Builds the OpenAPI document from the operations and their wire types.

Clients are generated from it, so fields are optional, nullable or required as they really are.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import PenstockError
from penstock.http.errors import Envelope, find_class_status
from penstock.http.operations import VERBS, Operation, is_wire_type
from penstock.model.fields import FIELDS
from penstock.model.settings import QueueSettings
from penstock.wire.consume import Delivery
from penstock.wire.publish import PublishRequest
from penstock.wire.records import MessageView

PREFIX = "#/components/schemas/"
PAGE = "text/html"
TEXT = """A durable work queue over HTTP. Every error has the form
`{"error": {"code", "message", "details", "request_id"}}`, and error codes are stable. A server
started with --auth requires `Authorization: Bearer` with an API key or a token."""
TAGS = {
    VERBS: "Publish, claim and settle messages, one at a time or in batches.",
    "messages": "Find, cancel, redrive, export and import messages.",
    "bulk": "Bulk actions; move, edit and reprioritise messages.",
    "views": "Saved filters of messages.",
    "waiting": "Steps of messages, and signals to them.",
    "workflows": "Graphs of messages that depend on each other.",
    "inbox": "Human steps, their patterns, and links that decide them.",
    "artifacts": "Files attached to results.",
    "queues": "Queues and their settings.",
    "scopes": "Namespaces of queues.",
    "schedules": "Messages published by cron expressions.",
    "schemas": "Schemas of message bodies, and their bindings to queues.",
    "rules": "Rules that route messages from queue to queue.",
    "broadcasts": "Durable subscriptions of broadcast queues.",
    "topology": "One document that declares scopes, queues, rules, schemas and access.",
    "callbacks": "Webhooks sent when messages end.",
    "subscriptions": "Webhooks sent when work is available.",
    "access": "API keys, roles, trusts and the audit log.",
    "events": "Live events.",
    "activity": "Activity, traces, and completion of filters.",
    "metrics": "Metrics of queues and consumers, anomalies, pipeline results.",
    "alerts": "Webhooks sent about anomalies.",
    "dashboard": "The dashboard and its data.",
    "system": "Health, metrics, workers and agents.",
}
SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key or a token."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
BATCH_NAME = re.compile(r"^Items_(\w+?)(?:Request)?_$")
# Statuses that are listed; all others are described by `default`.
ERRORS = {
    400: "Malformed",
    401: "Unauthenticated",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    413: "TooLarge",
    422: "Invalid",
    429: "TooMany",
    503: "Unavailable",
}


def make_document(operations: Sequence[Operation], prefix: str = "") -> dict[str, Any]:
    """`prefix` is where the app is mounted."""
    schemas = Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = operation.path.replace(":path", "")
        paths.setdefault(path, {})[operation.method.lower()] = describe(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version("penstock"),
            "description": TEXT,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": prefix or "/"}],
        "security": [{"bearer": []}, {"apiKey": []}, {}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "securitySchemes": SECURITY_SCHEMES,
            "responses": {name: describe_error(status, schemas) for status, name in ERRORS.items()},
            "schemas": schemas.components,
        },
    }


def describe(operation: Operation, schemas: "Schemas") -> dict[str, Any]:
    said: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": operation.name,
        "parameters": list(describe_parameters(operation, schemas)),
        "responses": describe_responses(operation, schemas),
    }
    if operation.description:
        said["description"] = operation.description
    if operation.takes is not None:
        content = schemas.describe_content(operation.takes, operation.example)
        said["requestBody"] = {"required": operation.needs_body, "content": content}
    if operation.public:
        said["security"] = []
    return said


def describe_parameters(operation: Operation, schemas: "Schemas") -> Iterator[dict[str, Any]]:
    component = schemas.components_of(operation.parameters)
    for name, schema in component.get("properties", {}).items():
        text = schema.pop("description", None)
        yield {
            "name": name,
            "in": "path" if name in operation.in_path else "query",
            "required": name in operation.in_path,
            **({"description": text} if text else {}),
            "schema": schema,
        }
    for name, text in operation.headers.items():
        yield {"name": name, "in": "header", "required": False, "description": text,
               "schema": {"type": "string"}}  # fmt: skip


def describe_responses(operation: Operation, schemas: "Schemas") -> dict[str, Any]:
    good: dict[str, Any] = {"description": operation.summary}
    if operation.gives is not None:
        good["content"] = schemas.describe_content(operation.gives, operation.answer)
    others = {str(status): {"description": text} for status, text in operation.also.items()}
    errors = {
        str(status): {"$ref": f"#/components/responses/{ERRORS[status]}"}
        for status in list_error_statuses(operation)
    }
    default = describe_error(None, schemas)
    if operation.gives == PAGE:
        # A page also shows its errors as pages.
        default["content"] |= schemas.describe_content(PAGE)
        errors = dict.fromkeys(errors, default)
    return {str(operation.status): good, **others, **errors, "default": default}


def list_error_statuses(operation: Operation) -> list[int]:
    statuses = {422, 503}
    if not operation.public:
        statuses |= {401, 403, 429}
    if operation.takes is not None:
        statuses |= {400, 413}
    if operation.in_path or operation.scoped or operation.tag == VERBS:
        statuses.add(404)
    if operation.method != "GET":
        statuses.add(409)
    return sorted(statuses)


def describe_error(status: int | None, schemas: "Schemas") -> dict[str, Any]:
    codes = {error.code for error in walk(PenstockError) if find_class_status(error) == status}
    return {
        "description": ", ".join(sorted(codes)) or "Error",
        "content": schemas.describe_content(Envelope),
    }


class Schemas:
    """The schema components of the wire types."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        taken = [each.takes for each in operations if each.decode is not None]
        given = [each.gives for each in operations if is_wire_type(each.gives)]
        given.append(Envelope)
        kinds = [*taken, *given, QueueSettings]
        made, self.components = schema_components(kinds)
        self.references = {repr(kind): ref for kind, ref in zip(kinds, made, strict=True)}
        requested = self.reach(self.references[repr(kind)] for kind in taken)
        self.describe_message_fields()
        self.add_settings_change()
        self.refine(requested)
        self.add_codes()

    def reach(self, schemas: Iterable[Any]) -> set[str]:
        """Returns the names of the components that the schemas refer to."""
        names: set[str] = set()
        waiting = list(schemas)
        while waiting:
            for name in set(find_references(waiting.pop())) - names:
                names.add(name)
                waiting.append(self.components[name])
        return names

    def describe_message_fields(self) -> None:
        for kind in (PublishRequest, Delivery, MessageView):
            for name, schema in self.components[kind.__name__]["properties"].items():
                if name in FIELDS:
                    schema["description"] = FIELDS[name].description

    def add_settings_change(self) -> None:
        """Adds the settings as a request has them: each is optional, and nested ones merge."""
        for name in sorted(self.reach([{"$ref": PREFIX + "QueueSettings"}])):
            self.components[f"{name}Change"] = rename_references(
                copy.deepcopy(self.components[name]), "{}Change"
            )
            self.components[f"{name}Change"]["title"] = f"{name}Change"
        for name in ("NewQueue", "ChangeQueue"):
            settings = self.components[name]["properties"]["settings"]
            self.components[name]["properties"]["settings"] = {
                "description": settings["description"],
                "$ref": PREFIX + "QueueSettingsChange",
            }

    def refine(self, requested: set[str]) -> None:
        """Says which fields responses always have. Generators take a field with a default for one
        that is always there, so defaults are stated in descriptions."""
        structs = {kind.__name__: kind for kind in walk(Struct)}
        for name, component in self.components.items():
            if "enum" in component:
                component.setdefault("type", "string")
            if name not in requested and not name.endswith("Change") and name in structs:
                refine_response(component, structs[name])
            for field in component.get("properties", {}).values():
                move_default(field)

    def add_codes(self) -> None:
        """Makes the codes of errors an enumeration."""
        codes = sorted({error.code for error in walk(PenstockError)} | {"INTERNAL"})
        self.components["ErrorCode"] = {"title": "ErrorCode", "type": "string", "enum": codes}
        for name in ("Error", "Problem"):
            self.components[name]["properties"]["code"] = {"$ref": PREFIX + "ErrorCode"}

    def components_of(self, kind: type[Struct]) -> dict[str, Any]:
        """Returns the schema of a struct that is not a component itself. Its parts become some."""
        _, made = schema_components([kind])
        own: dict[str, Any] = made.pop(kind.__name__)
        for name, component in made.items():
            component.setdefault("type", "string")
            self.components.setdefault(name, component)
        for field in own["properties"].values():
            if field.get("default", ...) is None:
                make_not_null(field)
        return own

    def describe_content(self, kind: Any, example: Any = None) -> dict[str, Any]:
        """Returns the content of a wire type, or of a media type that is not JSON."""
        shown = {} if example is None else {"example": example}
        if isinstance(kind, str):
            schema = {} if kind == "application/json" else {"type": "string"}
            return {kind: {"schema": schema, **shown}}
        return {"application/json": {"schema": self.references[repr(kind)], **shown}}


def schema_components(kinds: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    made, components = msgspec.json.schema_components(kinds, ref_template=PREFIX + "{name}")
    named = {BATCH_NAME.sub(r"\1BatchRequest", name): each for name, each in components.items()}
    for name, each in named.items():
        each["title"] = name
        rename_references(each, "{}")
    return [rename_references(each, "{}") for each in made], named


def rename_references(schema: Any, pattern: str) -> Any:
    for each in walk_schema(schema):
        if "$ref" in each:
            name = BATCH_NAME.sub(r"\1BatchRequest", each["$ref"].removeprefix(PREFIX))
            each["$ref"] = PREFIX + pattern.format(name)
    return schema


def find_references(schema: Any) -> list[str]:
    return [each["$ref"].removeprefix(PREFIX) for each in walk_schema(schema) if "$ref" in each]


def walk_schema(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for each in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(each, dict | list):
            yield from walk_schema(each)


def refine_response(component: dict[str, Any], kind: type[Struct]) -> None:
    fields = component.get("properties", {})
    if kind.__struct_config__.omit_defaults:
        for field in fields.values():
            if field.get("default", ...) is None:
                make_not_null(field)
        return
    required = set(component.get("required", ()))
    component["required"] = [
        name
        for name, field in fields.items()
        if name in required or field.pop("default", required) is not required
    ]


def make_not_null(field: dict[str, Any]) -> None:
    """A field that is left out instead of being null is not nullable."""
    del field["default"]
    kept = [each for each in field.pop("anyOf") if each != {"type": "null"}]
    field.update(kept[0] if len(kept) == 1 else {"anyOf": kept})


def move_default(field: dict[str, Any]) -> None:
    default = field.pop("default", None)
    if isinstance(default, str | int | float) and "$ref" not in field:
        text = field.get("description", "")
        field["description"] = f"{text} Default: {msgspec.json.encode(default).decode()}.".strip()


def walk(parent: type[Any]) -> Iterator[type[Any]]:
    """Yields the classes of this package below `parent`, and `parent` itself if it is one."""
    if parent.__module__.startswith("penstock."):
        yield parent
    for child in parent.__subclasses__():
        yield from walk(child)
