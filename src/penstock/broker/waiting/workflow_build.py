"""Publishes large workflows in pieces, so that no piece holds up other writers.

All nodes are held until the last piece is stored: those that wait for no other node of the pieces
wait for a gate, a held message that the last step ends.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.publish import NOT_PUBLISHED
from penstock.broker.waiting.dependencies import hold
from penstock.errors import Conflict, InvalidState
from penstock.model.changes import Change
from penstock.model.message import After, Draft, State, StoredMessage, Verb
from penstock.model.store_types import Entry, Published, Query
from penstock.model.waiting import HeldEnd
from penstock.model.workflow import Workflow, WorkflowNode, WorkflowState, with_ids
from penstock.rules import drafts, workflows

if TYPE_CHECKING:
    from penstock.broker.waiting.workflows import Workflows

WORKFLOW, OPEN, KEY = "workflow", "open_workflow", "workflow_key"
PIECE_SIZE = 1_000
PAGE_SIZE = 1_000
CANCEL_BATCH = 500
# A start that took longer was interrupted.
BUILDING_S = 3_600
GATE_TYPE = "penstock.workflow"
GATE = "gate"


class WorkflowBuilder:
    """Publishes nodes of one workflow in pieces: all of them, or those that a redrive repeats."""

    def __init__(
        self,
        service: "Workflows",
        flow: Workflow,
        entries: Mapping[int, Entry],
        version: int = 1,
        completed: Collection[int] = (),
    ) -> None:
        self.service = service
        self.store = service.store
        self.flow = flow
        self.entries = entries
        # Of the stored workflow while it is being built.
        self.version = version
        # The nodes that a redrive does not repeat because they have completed.
        self.completed = completed
        self.gate = 0
        self.ids: dict[int, int] = {}

    async def make_gate(self) -> Entry:
        flow = self.flow
        queue = await self.service.directory.get(flow.tenant, flow.scope, flow.nodes[0].queue)
        draft = Draft(
            queue=queue.name,
            type=GATE_TYPE,
            correlation_id=flow.correlation_id,
            headers={workflows.NODE_HEADER: workflows.NodeLabel(flow.id, GATE).encode()},
        )
        return hold(drafts.check_and_make_entry(draft, queue), After(policy="decision"))

    async def publish(self, gate: int) -> Workflow:
        """Publishes the nodes behind the gate, and opens it. Leaves nothing if one is refused."""
        self.gate = gate
        ordered = [at for at in workflows.sort_nodes(self.flow.nodes) if at in self.entries]
        try:
            for part in split(ordered, PIECE_SIZE):
                await self.publish_piece(part)
            numbered = [self.find_id(place) for place in range(len(self.flow.nodes))]
            flow = replace(with_ids(self.flow, numbered), state=WorkflowState.RUNNING, gate=gate)
            if not await self.service.save(flow, self.version):
                raise Conflict(f"workflow {self.flow.id} was cancelled before it was complete")
        except Conflict as error:
            await cancel_all(self.service, [gate, *self.ids.values()])
            if isinstance(error, InvalidState):
                await self.undo()
            raise
        await open_gate(self.service, flow)
        return flow

    def find_id(self, place: int) -> int:
        return self.ids.get(place, self.flow.nodes[place].id)

    async def publish_piece(self, places: Sequence[int]) -> None:
        position = {place: number for number, place in enumerate(places)}
        entries = [self.make_entry(place, position) for place in places]
        published = await self.store.enqueue(entries, atomic=True)
        refuse_unless_published(self.flow, published)
        self.ids.update(zip(places, (each.id for each in published), strict=True))

    async def undo(self) -> None:
        """Removes a workflow that was refused, so that its key is free, or ends its redrive."""
        flow = self.flow
        if flow.generation > 1:
            await self.service.save(replace(flow, state=WorkflowState.RUNNING), self.version)
            return
        names = [(WORKFLOW, flow.id), (OPEN, flow.id), *([(KEY, flow.key)] if flow.key else [])]
        deletes = tuple((kind, name_document(flow, name)) for kind, name in names)
        await self.store.advance(Change(deletes=deletes))

    def make_entry(self, place: int, position: dict[int, int]) -> Entry:
        """Returns the entry of a node, with edges to its piece and to what is stored."""
        node = self.flow.nodes[place]
        gated = workflows.needs_gate(node.after, self.entries)
        stored = [self.find_id(each) for each in node.after if each not in position]
        after = After(
            entries=tuple(position[each] for each in node.after if each in position),
            ids=(*stored, *([self.gate] if gated else [])),
            policy=node.policy,
            need=self.count_needed(node) if gated else node.need,
            on_dead=node.on_dead,
        )
        return hold(self.entries[place], after if node.after else After(ids=(self.gate,)))

    def count_needed(self, node: WorkflowNode) -> int:
        """Returns how many must complete, with the gate, so that none starts before it."""
        return max(node.need, sum(each in self.completed for each in node.after)) + 1


def refuse_unless_published(flow: Workflow, published: Sequence[Published]) -> None:
    """Raises InvalidState with the code of the node that was refused."""
    codes = [each.code for each in published if each.code]
    if codes:
        # The other nodes of a step are not published because of that one.
        cause = next((code for code in codes if code != NOT_PUBLISHED), NOT_PUBLISHED)
        raise InvalidState(f"workflow {flow.name!r} was refused: {cause}")


async def open_gate(service: "Workflows", flow: Workflow) -> None:
    """Lets the first nodes run. Repeated, it changes nothing."""
    end = HeldEnd(id=flow.gate, verb=Verb.DECIDE, state=State.COMPLETED, reason="opened")
    await service.store.end_held([end])


async def abandon(service: "Workflows", flow: Workflow, version: int) -> int:
    """Cancels what an interrupted start has published. Returns how many messages."""
    found = await find_messages(service, flow)
    ids = [found.get(str(place), node.id) for place, node in enumerate(flow.nodes)]
    left = replace(
        with_ids(flow, ids), state=WorkflowState.RUNNING, cancelled=True
    )  # fmt: skip
    if not await service.save(left, version):
        raise Conflict(f"workflow {flow.id} is changed by another request; try again")
    await cancel_all(service, list(found.values()))
    return len(found)


async def cancel_all(service: "Workflows", ids: Sequence[int]) -> None:
    # Children first: the end of a parent would cancel them for another reason.
    for part in split(sorted(ids, reverse=True), CANCEL_BATCH):
        await service.store.cancel(part)


async def find_messages(service: "Workflows", flow: Workflow) -> dict[str, int]:
    """Finds the messages of a workflow by the place of their node. The latest of a node counts."""
    queues = [
        queue.id
        for queue in await service.directory.list_queues()
        if (queue.scope.tenant, queue.scope.name) == (flow.tenant, flow.scope)
    ]
    found: dict[str, int] = {}
    before: int | None = None
    while True:
        query = Query(
            tuple(queues), correlation_id=flow.correlation_id, before=before, limit=PAGE_SIZE
        )
        page = await service.store.find(query)
        for record in page:
            if (place := find_place(flow, record.message)) is not None:
                found.setdefault(place, record.message.id)
        if len(page) < PAGE_SIZE:
            return found
        before = page[-1].message.id


def find_place(flow: Workflow, message: StoredMessage) -> str | None:
    label = workflows.read_label(message.meta.headers)
    return label.place if label is not None and label.workflow == flow.id else None


def name_document(flow: Workflow, name: str) -> str:
    return f"{flow.tenant}/{flow.scope}/{name}"


def split(places: Sequence[int], size: int) -> list[Sequence[int]]:
    return [places[first : first + size] for first in range(0, len(places), size)]
