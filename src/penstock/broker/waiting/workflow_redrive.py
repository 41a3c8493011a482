"""Redrives workflows: dead messages run again, and failed nodes are published again."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.waiting.dependencies import hold
from penstock.broker.waiting.workflow_build import (
    CANCEL_BATCH,
    OPEN,
    PIECE_SIZE,
    WorkflowBuilder,
    name_document,
    split,
)
from penstock.broker.waiting.workflow_start import UNKNOWN, make_document, make_key
from penstock.errors import Busy, InvalidState
from penstock.model.changes import Change, Changed
from penstock.model.documents import Document
from penstock.model.message import After, Record, State, StoredMessage, Verb
from penstock.model.store_types import Entry
from penstock.model.workflow import Workflow, WorkflowState, with_ids
from penstock.rules import drafts, workflows
from penstock.rules.items import copy_of

if TYPE_CHECKING:
    from penstock.broker.waiting.workflows import Workflows

States = Sequence[State | None]


class WorkflowRedriver:
    """Runs dead nodes again, and repeats failed ones with what waited for them."""

    def __init__(self, service: "Workflows") -> None:
        self.service = service
        self.store = service.store

    async def redrive(self, id: str, *, scope: str = "default") -> int:
        """Runs dead nodes again, and publishes failed ones and what waited for them again."""
        flow, version = await self.service.load(id, scope)
        if flow.state is WorkflowState.BUILDING:
            raise InvalidState(f"workflow {id} is being published; cancel it or wait")
        states = await self._read_states(flow)
        again = workflows.list_to_repeat(flow, states)
        refuse_removed(flow, again, states)
        entries = await self._copy_nodes(flow, again)
        await self._end_replaced(flow, again, states)
        dead = [
            node.id
            for place, node in enumerate(flow.nodes)
            if states[place] is State.DEAD and place not in entries
        ]
        if dead and flow.state.ended and not again:
            await self._repeat(flow, version, entries)
        # Before the copies: one that may start after a dead node waits for its next run.
        for part in split(dead, CANCEL_BATCH):
            await self.store.redrive(part)
        if again:
            completed = {at for at, state in enumerate(states) if state is State.COMPLETED}
            await self._repeat(flow, version, entries, completed)
        return len(again) + len(dead)

    async def _read_states(self, flow: Workflow) -> States:
        """Raises InvalidState while a node runs or is ready."""
        records = await self.service.read_records([node.id for node in flow.nodes])
        states = [None if record is None else record.state for record in records]
        runs = workflows.find_state(flow, states) is WorkflowState.RUNNING
        if runs or any(record is not None and has_begun(record) for record in records):
            raise InvalidState(f"workflow {flow.id} is running; redrive it when nothing of it runs")
        return states

    async def _end_replaced(self, flow: Workflow, again: Sequence[int], states: States) -> None:
        """Ends messages that wait or are dead, whose nodes get new ones: a node runs once."""
        left = [place for place in again if not is_over(states[place])]
        dead = [flow.nodes[place].id for place in left if states[place] is State.DEAD]
        waiting = [flow.nodes[place].id for place in left if states[place] is not State.DEAD]
        # Children first: the end of a parent would cancel them for another reason.
        for part in split(waiting[::-1], CANCEL_BATCH):
            await self.store.cancel(part)
        for part in split(dead, CANCEL_BATCH):
            await self.store.purge_dead(part)
        if left:
            states = await self._read_states(flow)
            if not all(is_over(states[place]) for place in left):
                raise Busy(f"workflow {flow.id} is being changed by other requests; try again")

    async def _repeat(
        self,
        flow: Workflow,
        version: int,
        entries: Mapping[int, Entry],
        completed: Collection[int] = (),
    ) -> None:
        large = len(entries) > PIECE_SIZE
        again = replace(
            flow,
            state=WorkflowState.BUILDING if large else WorkflowState.RUNNING,
            generation=flow.generation + 1,
            cancelled=False,
            ended_at=None,
            gate=0,
            building_at=await self.store.now() if large else None,
        )
        if large:
            builder = WorkflowBuilder(self.service, again, entries, version + 1, completed)
            opened = await self._open(again, version, [await builder.make_gate()])
            await builder.publish(opened.published[0].id)
            return
        unknown = [UNKNOWN if at in entries else node.id for at, node in enumerate(flow.nodes)]
        position = {place: number for number, place in enumerate(entries)}
        held = [hold_copy(flow, at, entry, position) for at, entry in entries.items()]
        changed = await self._open(with_ids(again, unknown), version, held)
        new = dict(zip(entries, (each.id for each in changed.published), strict=True))
        ids = [new.get(place, node.id) for place, node in enumerate(flow.nodes)]
        await self.service.save(with_ids(again, ids), version + 1)

    async def _open(self, flow: Workflow, version: int, entries: Sequence[Entry]) -> Changed:
        """Opens the workflow again, and publishes the entries with it."""
        saves = [Document(kind=OPEN, name=name_document(flow, flow.id), body=b"")]
        if flow.key:
            # The end of the workflow gave it an expiry.
            saves.append(make_key(flow))
        change = Change(
            guards=(make_document(flow, version=version),),
            saves=tuple(saves),
            entries=tuple(entries),
        )
        changed = await self.store.advance(change)
        if changed is None or not changed.written:
            raise Busy(f"workflow {flow.id} was changed by another request; try again")
        return changed

    async def _copy_nodes(self, flow: Workflow, places: Sequence[int]) -> dict[int, Entry]:
        """Copies the messages of nodes, without what they wait for."""
        found: dict[int, StoredMessage] = {}
        for part in split([flow.nodes[place].id for place in places], CANCEL_BATCH):
            for record in await self.store.get_many(part):
                found[record.message.id] = record.message
        labels = label_copies(flow, places)
        entries: dict[int, Entry] = {}
        for place in places:
            message = found.get(flow.nodes[place].id)
            if message is None:
                raise make_removed_error(flow, place)
            queue = await self.service.directory.get_by_id(message.queue_id)
            draft = copy_of(message, queue.name, message.body)
            headers = {**(draft.headers or {}), workflows.NODE_HEADER: labels[place]}
            entry = drafts.make_entry(replace(draft, headers=headers), queue)
            entries[place] = replace(entry, max_depth=None)
        return entries


def refuse_removed(flow: Workflow, again: Sequence[int], states: States) -> None:
    """Raises InvalidState if a node to repeat, or what it waits for, is no longer stored."""
    needed = [*again, *(parent for place in again for parent in flow.nodes[place].after)]
    for place in needed:
        if states[place] is None:
            raise make_removed_error(flow, place)


def make_removed_error(flow: Workflow, place: int) -> InvalidState:
    return InvalidState(
        f"message {flow.nodes[place].id} of workflow {flow.id} was removed by retention;"
        " start the workflow again"
    )


def has_begun(record: Record) -> bool:
    """True if a message waits in the middle of its run: for a step, a retry or a decision."""
    if record.state is not State.SCHEDULED:
        return False
    redriven = max((row.position for row in record.timeline if row.verb is Verb.REDRIVE), default=0)
    return any(row.fence is not None and row.position > redriven for row in record.timeline)


def is_over(state: State | None) -> bool:
    return state is None or state.final


def label_copies(flow: Workflow, places: Sequence[int]) -> dict[int, str]:
    """Labels the copies of nodes, which have higher ids than what is finished."""
    large = len(places) > PIECE_SIZE
    again = set(places)
    stays = [place for place in range(len(flow.nodes)) if place not in again]
    new = [at for at in workflows.sort_nodes(flow.nodes) if at in again] if large else places
    ranks = workflows.rank_nodes([*sorted(stays, key=lambda at: flow.nodes[at].id), *new])
    return {
        place: workflows.make_label(
            flow.id, place, flow.nodes[place].after, ranks,
            gated=large and workflows.needs_gate(flow.nodes[place].after, again),
        )
        for place in places
    }  # fmt: skip


def hold_copy(flow: Workflow, place: int, entry: Entry, position: Mapping[int, int]) -> Entry:
    """Adds edges to the other copies and to what is finished."""
    node = flow.nodes[place]
    after = After(
        entries=tuple(position[each] for each in node.after if each in position),
        ids=tuple(flow.nodes[each].id for each in node.after if each not in position),
        policy=node.policy,
        need=node.need,
        on_dead=node.on_dead,
    )
    return hold(entry, after if node.after else None)
