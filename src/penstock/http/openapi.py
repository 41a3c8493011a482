"""Builds the OpenAPI document: FastAPI's, plus the wire schemas and the hot routes."""

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from penstock.http.errors import Envelope
from penstock.http.operations import OPERATIONS, Operation
from penstock.http.routing import NAME, Route
from penstock.model.fields import FIELDS
from penstock.wire.consume import Delivery
from penstock.wire.publish import PublishRequest
from penstock.wire.records import MessageView

REF = "#/components/schemas/{name}"
SCOPE = {
    "name": "scope",
    "in": "query",
    "required": False,
    "description": "The scope (namespace) of the queues.",
    "schema": {"type": "string", "pattern": NAME, "default": "default"},
}
VERBS = "verbs"
TEXT = """A durable work queue over HTTP. Every error has the form
`{"error": {"code", "message", "details", "request_id"}}`, and error codes are stable. A server
started with --auth requires `Authorization: Bearer` with an API key or a token."""


class Schemas:
    """The schema components and the references to them."""

    def __init__(self, kinds: Iterable[Any]) -> None:
        self.kinds = [kind for kind in kinds if kind is not None and not isinstance(kind, str)]
        told, self.components = msgspec.json.schema_components(self.kinds, ref_template=REF)
        self.references = {
            repr(kind): schema for kind, schema in zip(self.kinds, told, strict=True)
        }

    def describe_content(self, kind: Any, example: Any = None) -> dict[str, Any]:
        """Returns the content of a wire type, or of a media type that is not JSON."""
        if isinstance(kind, str):
            schema = {} if kind == "application/json" else {"type": "string"}
            return {kind: {"schema": schema}}
        shown = {} if example is None else {"example": example}
        return {"application/json": {"schema": self.references[repr(kind)], **shown}}


def make_document(app: FastAPI, routes: dict[str, list[Route]]) -> dict[str, Any]:
    listed = [route for each in routes.values() for route in each]
    kinds = [each.takes for each in listed] + [each.gives for each in listed]
    hot = OPERATIONS.values()
    schemas = Schemas([*kinds, *(o.takes for o in hot), *(o.gives for o in hot), Envelope])
    made = get_openapi(title=app.title, version=app.version, description=TEXT, routes=app.routes)
    for route in listed:
        path = made["paths"][route.path.replace(":path", "")]
        describe(path[route.method.lower()], route, schemas)
    for path, operation in OPERATIONS.items():
        made["paths"][path] = {"post": describe_operation(operation, schemas)}
    describe_message_fields(schemas.components)
    made["components"] = {"schemas": schemas.components}
    return made


def describe_message_fields(components: dict[str, Any]) -> None:
    for kind in (PublishRequest, Delivery, MessageView):
        for name, schema in components[kind.__name__]["properties"].items():
            if name in FIELDS:
                schema["description"] = FIELDS[name].description


def describe(told: dict[str, Any], route: Route, schemas: Schemas) -> None:
    if route.takes is not None:
        content = schemas.describe_content(route.takes, route.example)
        told["requestBody"] = {"required": False, "content": content}
    good: dict[str, Any] = {"description": route.summary}
    if route.gives is not None:
        good["content"] = schemas.describe_content(route.gives)
    others = {str(status): {"description": text} for status, text in route.also.items()}
    told["responses"] = {str(route.status): good, **others, **describe_errors(schemas)}


def describe_errors(schemas: Schemas) -> dict[str, Any]:
    return {"default": {"description": "Error", "content": schemas.describe_content(Envelope)}}


def describe_operation(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    good = {
        "description": operation.summary,
        "content": schemas.describe_content(operation.gives, operation.answer),
    }
    return {
        "tags": [VERBS],
        "summary": operation.summary,
        "operationId": operation.path.removeprefix("/v1/").replace("/", "_"),
        "parameters": [SCOPE] if operation.scoped else [],
        "requestBody": {
            "required": True,
            "content": schemas.describe_content(operation.takes, operation.example),
        },
        "responses": {str(operation.status): good, **describe_errors(schemas)},
    }
