"""The table of all operations."""

from functools import lru_cache

import msgspec
from starlette.responses import Response

from penstock.http.context import RequestContext
from penstock.http.handlers.access import access
from penstock.http.handlers.activity import activity
from penstock.http.handlers.artifacts import artifacts
from penstock.http.handlers.broadcasts import broadcasts
from penstock.http.handlers.bulk import bulk
from penstock.http.handlers.bulk_actions import bulk_actions
from penstock.http.handlers.dashboard import dashboard, views
from penstock.http.handlers.events import events
from penstock.http.handlers.failures import failures
from penstock.http.handlers.human_links import human_links
from penstock.http.handlers.inbox import human_webhooks, inbox
from penstock.http.handlers.messages import messages
from penstock.http.handlers.metrics import alerts, metrics
from penstock.http.handlers.queues import queues, scopes
from penstock.http.handlers.rules import rules
from penstock.http.handlers.runs import runs
from penstock.http.handlers.schedules import schedules
from penstock.http.handlers.schemas import schemas
from penstock.http.handlers.system import system
from penstock.http.handlers.topology import topology
from penstock.http.handlers.verbs import verbs
from penstock.http.handlers.waiting import waiting
from penstock.http.handlers.webhooks import callbacks, subscriptions
from penstock.http.handlers.workflows import workflows
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


# Tables with paths below a message come before `messages`.
TABLES = (
    verbs, scopes, queues, bulk, bulk_actions, artifacts, callbacks, waiting, runs, messages,
    schedules, schemas, rules, broadcasts, topology, subscriptions, events, workflows, inbox,
    human_links, human_webhooks, access, metrics, alerts, system, activity, dashboard,
    failures, views,
)  # fmt: skip
OPERATIONS: tuple[Operation, ...] = tuple(each for table in TABLES for each in table.all)
