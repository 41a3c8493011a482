"""Starts workflows: publishes all nodes in one step, also in the caller's transaction."""

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from penstock.broker.waiting.dependencies import hold, keep_in_place
from penstock.broker.waiting.workflow_build import (
    KEY,
    OPEN,
    PIECE_SIZE,
    WORKFLOW,
    WorkflowBuilder,
    name_document,
    refuse_unless_published,
)
from penstock.errors import (
    Conflict,
    IdempotencyConflict,
    InvalidInput,
    PenstockError,
)
from penstock.model.changes import Change, Changed
from penstock.model.documents import Document
from penstock.model.message import NEVER, Draft, Moment
from penstock.model.queue import Queue
from penstock.model.store_types import Entry
from penstock.model.structs import copy_fields
from penstock.model.workflow import (
    NodeDraft,
    PreparedWorkflow,
    Workflow,
    WorkflowNode,
    WorkflowStart,
    WorkflowState,
    with_ids,
)
from penstock.rules import drafts, workflows
from penstock.rules.validation import check_text

if TYPE_CHECKING:
    from penstock.broker.waiting.workflows import Workflows

MAX_NAME = 200
# The id of a node whose message is being published.
UNKNOWN = 0
encode = msgspec.json.Encoder().encode


class WorkflowKey(msgspec.Struct, frozen=True):
    """The workflow of an idempotency key, and a hash of its graph."""

    id: str
    digest: str


class WorkflowStarter:
    def __init__(self, service: "Workflows") -> None:
        self.service = service
        self.store = service.store
        self.directory = service.directory
        self.tenant = service.tenant

    async def start(
        self,
        name: str,
        nodes: Sequence[NodeDraft],
        *,
        key: str | None = None,
        correlation_id: str | None = None,
        scope: str = "default",
    ) -> WorkflowStart:
        """Publishes all nodes. A key is unique while its workflow is stored.

        Up to 1,000 nodes are one step. A larger workflow is published in pieces, and none of its
        nodes runs before the last of them.
        """
        prepared = await self.prepare(
            name, nodes, key=key, correlation_id=correlation_id, scope=scope
        )
        return prepared.found or await self._publish(prepared)

    async def prepare(
        self,
        name: str,
        nodes: Sequence[NodeDraft],
        *,
        key: str | None = None,
        correlation_id: str | None = None,
        scope: str = "default",
    ) -> PreparedWorkflow:
        """Checks a workflow, without writing."""
        check_text("name", name, MAX_NAME)
        workflows.check_graph(nodes)
        now = await self.store.now()
        id = f"{now:x}{secrets.token_hex(3)}"
        flow = Workflow(
            id=id,
            name=name,
            tenant=self.tenant,
            scope=scope,
            created_at=now,
            correlation_id=correlation_id or f"workflow:{id}",
            key=key or "",
            digest=workflows.compute_digest(name, nodes),
            nodes=tuple(make_node(node, UNKNOWN) for node in nodes),
        )
        large = len(nodes) > PIECE_SIZE
        ranks = workflows.rank_nodes(workflows.sort_nodes(nodes)) if large else range(len(nodes))
        entries = []
        for place, node in enumerate(nodes):
            gated = large and not node.after
            label = workflows.make_label(id, place, node.after, ranks, gated=gated)
            entries.append(await self._make_entry(flow, node, label))
        found = None
        if key is not None:
            check_text("key", key, MAX_NAME)
            found = await self._find_key(flow)
        return PreparedWorkflow(flow, tuple(entries), found)

    def start_on(self, connection: object, prepared: PreparedWorkflow) -> WorkflowStart:
        """Starts a prepared workflow when the caller commits."""
        if prepared.found is not None:
            return prepared.found
        changed = self.store.advance_on(connection, self._make_inside(prepared))
        flow = number_nodes(prepared.flow, changed)
        self.store.advance_on(connection, Change(guards=(make_document(flow, version=1),)))
        return make_start(flow)

    async def astart_on(self, connection: object, prepared: PreparedWorkflow) -> WorkflowStart:
        """Does the same on an async connection."""
        if prepared.found is not None:
            return prepared.found
        changed = await self.store.aadvance_on(connection, self._make_inside(prepared))
        flow = number_nodes(prepared.flow, changed)
        numbered = Change(guards=(make_document(flow, version=1),))
        await self.store.aadvance_on(connection, numbered)
        return make_start(flow)

    def _make_inside(self, prepared: PreparedWorkflow) -> Change:
        if len(prepared.entries) > PIECE_SIZE:
            raise InvalidInput(
                f"the workflow has {len(prepared.entries):,} nodes; in your own transaction it has"
                f" at most {PIECE_SIZE:,}: start it after the commit"
            )
        return make_change(prepared)

    async def _publish(self, prepared: PreparedWorkflow) -> WorkflowStart:
        large = len(prepared.entries) > PIECE_SIZE
        builder = WorkflowBuilder(self.service, prepared.flow, dict(enumerate(prepared.entries)))
        entries = (await builder.make_gate(),) if large else prepared.entries
        state = WorkflowState.BUILDING if large else WorkflowState.RUNNING
        first = replace(prepared, flow=replace(prepared.flow, state=state), entries=entries)
        changed = await self.store.advance(make_change(first))
        if changed is None and prepared.flow.key:
            found = await self._find_key(prepared.flow)
            if found is not None:
                return found
        published = expect_published(prepared.flow, changed)
        if large:
            return make_start(await builder.publish(published[0]))
        flow = with_ids(prepared.flow, published)
        await self.service.save(flow, 1)
        return make_start(flow)

    async def _find_key(self, flow: Workflow) -> WorkflowStart | None:
        document = await self.store.document(KEY, name_document(flow, flow.key))
        if document is None:
            return None
        held = msgspec.json.decode(document.body, type=WorkflowKey)
        if held.digest != flow.digest:
            raise IdempotencyConflict(
                f"key {flow.key!r} belongs to workflow {held.id} with another graph"
            )
        found, _ = await self.service.load(held.id, flow.scope)
        if found.state is WorkflowState.BUILDING:
            raise Conflict(f"workflow {held.id} of key {flow.key!r} is being published; try again")
        return WorkflowStart(held.id, tuple(node.id for node in found.nodes), duplicate=True)

    async def _make_entry(self, flow: Workflow, node: NodeDraft, label: str) -> Entry:
        headers = {**(node.draft.headers or {}), workflows.NODE_HEADER: label}
        draft = replace(node.draft, correlation_id=flow.correlation_id, headers=headers)
        queue = await self.directory.get(self.tenant, flow.scope, draft.queue)
        if (refusal := drafts.explain_refusal(queue)) is not None:
            raise refusal
        entry = self._govern(draft, queue) if queue.governed else None
        entry = entry or drafts.check_and_make_entry(draft, queue)
        return hold(entry, workflows.make_after(node))

    def _govern(self, draft: Draft, queue: Queue) -> Entry | None:
        """Returns the entry that rules made of a task, which must stay in its queue."""
        from penstock.broker.governance import govern_one

        governed = govern_one(draft, queue, self.directory.policy)
        if isinstance(governed, PenstockError):
            raise governed
        return keep_in_place(governed) if isinstance(governed, Entry) else None


def make_change(prepared: PreparedWorkflow) -> Change:
    flow = prepared.flow
    opened = Document(kind=OPEN, name=name_document(flow, flow.id), body=b"", version=0)
    guards = [make_document(flow, version=0), opened]
    if flow.key:
        guards.append(make_key(flow, version=0))
    return Change(guards=tuple(guards), entries=prepared.entries)


def make_key(flow: Workflow, *, version: int | None = None, expires_at: Moment = NEVER) -> Document:
    return Document(
        kind=KEY,
        name=name_document(flow, flow.key),
        body=encode(WorkflowKey(flow.id, flow.digest)),
        version=version,
        expires_at=expires_at,
    )


def make_document(flow: Workflow, *, version: int, expires_at: Moment = NEVER) -> Document:
    return Document(
        kind=WORKFLOW,
        name=name_document(flow, flow.id),
        body=encode(flow),
        version=version,
        expires_at=expires_at,
    )


def number_nodes(flow: Workflow, changed: Changed | None) -> Workflow:
    return with_ids(flow, expect_published(flow, changed))


def expect_published(flow: Workflow, changed: Changed | None) -> list[int]:
    """Returns the ids of the messages, or raises why the workflow did not start."""
    if changed is None:
        raise Conflict(f"workflow {flow.name!r} was started by another request; try again")
    refuse_unless_published(flow, changed.published)
    return [each.id for each in changed.published]


def make_start(flow: Workflow) -> WorkflowStart:
    return WorkflowStart(flow.id, tuple(node.id for node in flow.nodes))


def make_node(node: NodeDraft, id: int) -> WorkflowNode:
    return copy_fields(WorkflowNode, node, id=id, queue=node.draft.queue, type=node.draft.type)
