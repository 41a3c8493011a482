"""The table of all operations."""

from functools import lru_cache

import msgspec
from starlette.responses import Response

from penstock.http.context import RequestContext
from penstock.http.handlers.access import access
from penstock.http.handlers.artifacts import artifacts
from penstock.http.handlers.bulk import bulk
from penstock.http.handlers.events import events
from penstock.http.handlers.messages import messages
from penstock.http.handlers.queues import queues, schedules, scopes
from penstock.http.handlers.system import system
from penstock.http.handlers.verbs import verbs
from penstock.http.handlers.webhooks import callbacks, subscriptions
from penstock.http.openapi import make_document
from penstock.http.operations import Operation


@system.add("GET", "/openapi.json", "OpenAPI document", "application/json", right=None,
            public=True)  # fmt: skip
async def get_openapi(call: RequestContext) -> Response:
    document = encode_document(call.asgi_scope.get("root_path", ""))
    return Response(document, media_type="application/json")


@lru_cache(4)
def encode_document(prefix: str) -> bytes:
    return msgspec.json.encode(make_document(OPERATIONS, prefix))


# `bulk`, `artifacts` and `callbacks` have paths below a message: they come before `messages`.
TABLES = (
    verbs, scopes, queues, bulk, artifacts, callbacks, messages, schedules, subscriptions, events,
    access, system,
)  # fmt: skip
OPERATIONS: tuple[Operation, ...] = tuple(each for table in TABLES for each in table.all)
