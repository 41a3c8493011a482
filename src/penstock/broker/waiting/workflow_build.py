"""Starts large workflows in pieces, so that no piece holds up other writers.

All nodes are held until the last piece is stored: those that wait for no other wait for a gate, a
held message that the last step ends.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.publish import NOT_PUBLISHED
from penstock.broker.waiting.dependencies import hold
from penstock.errors import Conflict, InvalidState
from penstock.model.changes import Change
from penstock.model.message import After, Draft, State, StoredMessage, Verb
from penstock.model.store_types import Entry, Published, Query
from penstock.model.waiting import HeldEnd
from penstock.model.workflow import PreparedWorkflow, Workflow, WorkflowState, with_ids
from penstock.rules import drafts, workflows

if TYPE_CHECKING:
    from penstock.broker.waiting.workflows import Workflows

WORKFLOW, OPEN, KEY = "workflow", "open_workflow", "workflow_key"
PIECE = 1_000
PAGE = 1_000
CANCEL_BATCH = 500
# A start that took longer was interrupted.
BUILDING_S = 3_600
GATE_TYPE = "penstock.workflow"
NODE_HEADER = "penstock-node"


class WorkflowBuilder:
    """Publishes one workflow in pieces."""

    def __init__(self, service: "Workflows", prepared: PreparedWorkflow) -> None:
        self.service = service
        self.store = service.store
        self.flow = prepared.flow
        self.entries = prepared.entries
        self.gate = 0
        self.ids: dict[int, int] = {}

    async def make_gate(self) -> Entry:
        flow = self.flow
        queue = await self.service.directory.get(flow.tenant, flow.scope, flow.nodes[0].queue)
        draft = Draft(
            queue=queue.name,
            type=GATE_TYPE,
            correlation_id=flow.correlation_id,
            headers={NODE_HEADER: "gate"},
        )
        return hold(drafts.check_and_make_entry(draft, queue), After(policy="decision"))

    async def publish(self, gate: int) -> Workflow:
        """Publishes the nodes behind the gate, and opens it. Leaves nothing if one is refused."""
        self.gate = gate
        try:
            for part in split(workflows.sort_nodes(self.flow.nodes), PIECE):
                await self.publish_piece(part)
            numbered = [self.ids[place] for place in range(len(self.entries))]
            flow = replace(
                with_ids(self.flow, numbered),
                state=WorkflowState.RUNNING,
                gate=gate,
            )
            if not await self.service.save(flow, 1):
                raise Conflict(f"workflow {self.flow.id} was cancelled before it was complete")
        except Conflict as error:
            await cancel_all(self.service, [gate, *self.ids.values()])
            if isinstance(error, InvalidState):
                await self.forget()
            raise
        await open_gate(self.service, flow)
        return flow

    async def publish_piece(self, places: Sequence[int]) -> None:
        position = {place: number for number, place in enumerate(places)}
        entries = [self.make_entry(place, position) for place in places]
        published = await self.store.enqueue(entries, atomic=True)
        refuse_unless_published(self.flow, published)
        self.ids.update(zip(places, (each.id for each in published), strict=True))

    async def forget(self) -> None:
        """Removes a workflow that was refused, so that its key is free."""
        flow = self.flow
        names = [(WORKFLOW, flow.id), (OPEN, flow.id), *([(KEY, flow.key)] if flow.key else [])]
        deletes = tuple((kind, name_document(flow, name)) for kind, name in names)
        await self.store.advance(Change(deletes=deletes))

    def make_entry(self, place: int, position: dict[int, int]) -> Entry:
        """Returns the entry of a node, with edges to its piece and to what is stored."""
        node = self.flow.nodes[place]
        after = After(
            entries=tuple(position[each] for each in node.after if each in position),
            ids=tuple(self.ids[each] for each in node.after if each not in position),
            policy=node.policy,
            need=node.need,
            on_dead=node.on_dead,
        )
        return hold(self.entries[place], after if node.after else After(ids=(self.gate,)))


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
        query = Query(tuple(queues), correlation_id=flow.correlation_id, before=before, limit=PAGE)
        page = await service.store.find(query)
        for record in page:
            if (place := find_place(record.message)) is not None:
                found.setdefault(place, record.message.id)
        if len(page) < PAGE:
            return found
        before = page[-1].message.id


def find_place(message: StoredMessage) -> str | None:
    place = (message.meta.headers or {}).get(NODE_HEADER, "")
    return place if place.isdecimal() or message.type == GATE_TYPE else None


def name_document(flow: Workflow, name: str) -> str:
    return f"{flow.tenant}/{flow.scope}/{name}"


def split(places: Sequence[int], size: int) -> list[Sequence[int]]:
    return [places[first : first + size] for first in range(0, len(places), size)]
