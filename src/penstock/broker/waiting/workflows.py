"""Workflows: publishes messages that wait for each other, and manages them together."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.dependencies import hold
from penstock.broker.waiting.live_events import make_event_document, make_workflow_event
from penstock.broker.waiting.workflow_build import OPEN, WORKFLOW, abandon
from penstock.broker.waiting.workflow_start import (
    UNKNOWN,
    WorkflowStarter,
    make_document,
    make_key,
)
from penstock.errors import Busy, InvalidState, NotFound
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.message import MICROS_PER_SECOND, After, Moment, State
from penstock.model.store_types import Entry
from penstock.model.workflow import Workflow, WorkflowState, WorkflowView, with_ids
from penstock.retry import DOCUMENT_SAVE_ATTEMPTS
from penstock.rules import drafts, workflows
from penstock.rules.items import copy_of
from penstock.rules.validation import clip
from penstock.store import Store

PAGE = 1_000
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

    # Reading.

    async def list_workflows(
        self, *, state: WorkflowState | None = None, scope: str = "default"
    ) -> list[Workflow]:
        """Lists workflows, newest first. Their counts may lag by a second."""
        prefix = self._name(scope, "")
        found: list[Workflow] = []
        after = prefix
        while True:
            page = await self.store.documents(WORKFLOW, after, PAGE)
            fitting = [each for each in page if each.name.startswith(prefix)]
            found += map(decode, fitting)
            if len(fitting) < PAGE:
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
            state=workflows.find_state(flow, states) if has_ids(flow) else flow.state,
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
        found: dict[int, State] = {}
        for part in split(ids):
            for record in await self.store.get_many(part):
                found[record.message.id] = record.state
        return [found.get(id) for id in ids]

    # Changing.

    async def cancel(self, id: str, *, scope: str = "default") -> int:
        """Cancels what has not finished. Running nodes are asked to stop."""
        for _ in range(DOCUMENT_SAVE_ATTEMPTS):
            flow, version = await self.load(id, scope)
            if flow.state is WorkflowState.BUILDING:
                return await abandon(self, flow, version)
            if await self.save(replace(flow, cancelled=True), version):
                break
        else:
            raise Busy(f"workflow {id} is being changed by other requests; try again")
        states = await self.read_states([node.id for node in flow.nodes])
        left = [
            node.id
            for node, state in zip(flow.nodes, states, strict=True)
            if state is not None and not state.final
        ]
        # Children first: the end of a parent would cancel them for another reason.
        for part in split(left[::-1]):
            await self.store.cancel(part)
        return len(left)

    async def redrive(self, id: str, *, scope: str = "default") -> int:
        """Runs dead nodes again, and publishes failed ones and what waited for them again."""
        flow, version = await self.load(id, scope)
        if flow.state is WorkflowState.BUILDING:
            raise InvalidState(f"workflow {id} is being published; cancel it or wait")
        states = await self.read_states([node.id for node in flow.nodes])
        if workflows.find_state(flow, states) is WorkflowState.RUNNING:
            raise InvalidState(f"workflow {id} is running; redrive it when nothing of it runs")
        again = workflows.list_to_repeat(flow, states)
        dead = [
            node.id
            for place, node in enumerate(flow.nodes)
            if states[place] is State.DEAD and place not in again
        ]
        if again:
            await self._repeat(flow, version, again)
        for part in split(dead):
            await self.store.redrive(part)
        return len(again) + len(dead)

    async def _repeat(self, flow: Workflow, version: int, places: Sequence[int]) -> None:
        entries = await self._copy_nodes(flow, places)
        again = replace(
            with_ids(flow, [UNKNOWN if at in places else n.id for at, n in enumerate(flow.nodes)]),
            state=WorkflowState.RUNNING,
            generation=flow.generation + 1,
            cancelled=False,
            ended_at=None,
        )
        opened = Document(kind=OPEN, name=self._name(flow.scope, flow.id), body=b"")
        change = Change(
            guards=(make_document(again, version=version),), saves=(opened,), entries=tuple(entries)
        )
        changed = await self.store.advance(change)
        if changed is None or not changed.written:
            raise Busy(f"workflow {flow.id} was changed by another request; try again")
        new = dict(zip(places, (each.id for each in changed.published), strict=True))
        ids = [new.get(place, node.id) for place, node in enumerate(flow.nodes)]
        await self.save(with_ids(again, ids), version + 1)

    async def _copy_nodes(self, flow: Workflow, places: Sequence[int]) -> list[Entry]:
        """Copies the messages of nodes, with edges to each other and to what is finished."""
        position = {place: number for number, place in enumerate(places)}
        records = {
            record.message.id: record
            for part in split([flow.nodes[place].id for place in places])
            for record in await self.store.get_many(part)
        }
        entries: list[Entry] = []
        for place in places:
            node = flow.nodes[place]
            if node.id not in records:
                raise InvalidState(
                    f"message {node.id} of workflow {flow.id} was removed by retention"
                )
            message = records[node.id].message
            queue = await self.directory.get_by_id(message.queue_id)
            entry = drafts.make_entry(copy_of(message, queue.name, message.body), queue)
            after = After(
                entries=tuple(position[each] for each in node.after if each in position),
                ids=tuple(flow.nodes[each].id for each in node.after if each not in position),
                policy=node.policy,
                need=node.need,
                on_dead=node.on_dead,
            )
            entries.append(hold(replace(entry, max_depth=None), after if node.after else None))
        return entries

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


def has_ids(flow: Workflow) -> bool:
    """False until the start has recorded the messages that it published."""
    return all(node.id != UNKNOWN for node in flow.nodes)


def split(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[first : first + READ_BATCH] for first in range(0, len(ids), READ_BATCH)]


def decode(document: Document) -> Workflow:
    return msgspec.json.decode(document.body, type=Workflow)
