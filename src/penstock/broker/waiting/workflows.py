"""Workflows: publishes messages that wait for each other, and manages them together."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from penstock.broker.cancel import end_human_steps
from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.live_events import make_event_document, make_workflow_event
from penstock.broker.waiting.workflow_build import CANCEL_BATCH, OPEN, WORKFLOW, abandon, split
from penstock.broker.waiting.workflow_redrive import WorkflowRedriver
from penstock.broker.waiting.workflow_start import (
    UNKNOWN,
    WorkflowStarter,
    make_document,
    make_key,
)
from penstock.errors import Busy, NotFound
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.message import MICROS_PER_SECOND, Moment, Record, State
from penstock.model.workflow import Workflow, WorkflowState, WorkflowView
from penstock.retry_policies import DOCUMENT_SAVE_ATTEMPTS
from penstock.rules import workflows
from penstock.rules.validation import clip
from penstock.store import Store

PAGE_SIZE = 1_000
READ_BATCH = 500
# An ended workflow is kept as long as messages are by default.
RETENTION_S = 7 * 86_400
encode = msgspec.json.Encoder().encode


class Workflows:
    """The workflows of one tenant."""

    def __init__(self, store: Store, directory: QueueCache, tenant: str) -> None:
        self.store = store
        self.directory = directory
        self.tenant = tenant
        starter = WorkflowStarter(self)
        self.start = starter.start
        self.prepare = starter.prepare
        self.start_on = starter.start_on
        self.astart_on = starter.astart_on
        self.redrive = WorkflowRedriver(self).redrive

    # Reading.

    async def list_workflows(
        self, *, state: WorkflowState | None = None, scope: str = "default"
    ) -> list[Workflow]:
        """Lists workflows, newest first. Their counts may lag by a second."""
        prefix = self._name(scope, "")
        found: list[Workflow] = []
        after = prefix
        while True:
            page = await self.store.documents(WORKFLOW, after, PAGE_SIZE)
            fitting = [each for each in page if each.name.startswith(prefix)]
            found += map(decode, fitting)
            if len(fitting) < PAGE_SIZE:
                break
            after = page[-1].name
        chosen = [each for each in found if state in (None, each.state)]
        return sorted(chosen, key=lambda each: (each.created_at, each.id), reverse=True)

    async def get(self, id: str, *, scope: str = "default") -> WorkflowView:
        """Returns a workflow with the present states of its nodes."""
        flow, _ = await self.load(id, scope)
        states = await self.read_states([node.id for node in flow.nodes])
        current = replace(
            flow,
            state=workflows.find_state(flow, states) if is_published(flow) else flow.state,
            counts=workflows.count_states(states),
        )
        return WorkflowView(current, tuple(states))

    async def load(self, id: str, scope: str) -> tuple[Workflow, int]:
        document = await self.store.document(WORKFLOW, self._name(scope, id))
        if document is None:
            raise NotFound(f"no workflow with id {clip(id)}")
        return decode(document), document.version or 0

    async def read_states(self, ids: Sequence[int]) -> list[State | None]:
        """Returns None for messages that have left the store."""
        records = await self.read_records(ids)
        return [None if record is None else record.state for record in records]

    async def read_records(self, ids: Sequence[int]) -> list[Record | None]:
        found: dict[int, Record] = {}
        for part in split(ids, READ_BATCH):
            for record in await self.store.get_many(part):
                found[record.message.id] = record
        return [found.get(id) for id in ids]

    # Changing.

    async def cancel(self, id: str, *, scope: str = "default") -> int:
        """Cancels what has not finished. Running nodes are asked to stop."""
        for _ in range(DOCUMENT_SAVE_ATTEMPTS):
            flow, version = await self.load(id, scope)
            if flow.state is WorkflowState.BUILDING:
                return await abandon(self, flow, version)
            # An ended workflow keeps its expiry.
            if flow.state.ended or await self.save(replace(flow, cancelled=True), version):
                break
        else:
            raise Busy(f"workflow {id} is being changed by other requests; try again")
        ids = [node.id for node in flow.nodes]
        states = dict(zip(ids, await self.read_states(ids), strict=True))
        left = [
            id
            for id, state in states.items()
            if state is not None and not state.final and state is not State.DEAD
        ]
        # Children first: the end of a parent would cancel them for another reason.
        for part in split(left[::-1], CANCEL_BATCH):
            await self.store.cancel(part)
            waiting = [id for id in part if states[id] is State.SCHEDULED]
            await end_human_steps(self.store, self.directory, waiting)
        return len(left)

    async def save(self, flow: Workflow, version: int) -> bool:
        """Saves a workflow unless another process has changed it."""
        document = make_document(flow, version=version)
        (saved,) = await self.store.save_documents([document])
        return saved

    async def block(self, flow: Workflow, version: int, now: Moment) -> bool:
        """Saves that a workflow is blocked, with its event."""
        change = Change(
            guards=(make_document(flow, version=version),),
            saves=(make_event_document(make_workflow_event(flow, now)),),
        )
        return await self.store.advance(change) is not None

    async def end(self, flow: Workflow, version: int, now: Moment) -> bool:
        """Saves the end of a workflow. It and its key are kept for a while."""
        until = now + RETENTION_S * MICROS_PER_SECOND
        saves = [make_event_document(make_workflow_event(flow, now))]
        if flow.key:
            saves.append(make_key(flow, expires_at=until))
        change = Change(
            guards=(make_document(flow, version=version, expires_at=until),),
            saves=tuple(saves),
            deletes=((OPEN, self._name(flow.scope, flow.id)),),
        )
        return await self.store.advance(change) is not None

    def _name(self, scope: str, name: str) -> str:
        return f"{self.tenant}/{scope}/{name}"


def is_published(flow: Workflow) -> bool:
    """False while a large start or redrive publishes its pieces: the nodes have earlier ids."""
    return has_ids(flow) and flow.state is not WorkflowState.BUILDING


def has_ids(flow: Workflow) -> bool:
    """False until the start has recorded the messages that it published."""
    return all(node.id != UNKNOWN for node in flow.nodes)


def decode(document: Document) -> Workflow:
    return msgspec.json.decode(document.body, type=Workflow)
