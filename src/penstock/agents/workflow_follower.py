"""Folds the ends of messages into the counts and the state of their workflows."""

from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.workflow_build import (
    BUILDING_S,
    OPEN,
    abandon,
    find_messages,
    open_gate,
)
from penstock.broker.waiting.workflow_start import UNKNOWN
from penstock.broker.waiting.workflows import Workflows, has_ids
from penstock.errors import NotFound
from penstock.model.message import MICROS_PER_SECOND, Moment, State
from penstock.model.workflow import Workflow, WorkflowState, with_ids
from penstock.rules import workflows
from penstock.runner import report
from penstock.store import Store

PAGE_SIZE = 1_000
MAX_ROWS = 5_000
# `recent` may leave out rows, so all nodes are read again after this time.
RECOUNT_S = 60
# A start that was interrupted before it knew the ids of its messages.
UNFINISHED_START_S = 10


class TrackedWorkflow(Struct):
    """An open workflow, and the last known states of its nodes."""

    flow: Workflow
    version: int
    states: list[State | None]
    recount_at: Moment


class WorkflowFollower:
    name = "workflow_follower"
    every = 1.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by
        self.tracked: dict[str, TrackedWorkflow] = {}
        # Maps message ids to the document name of their workflow and their place in it.
        self.places: dict[int, tuple[str, int]] = {}
        self.position = 0

    async def tick(self) -> float:
        names = [each.name for each in await self.store.documents(OPEN, "", PAGE_SIZE)]
        if not names:
            self._forget_all()
            return self.every
        if not await self.store.claim_tick(self.name, self.every, self.by):
            # Another process follows them; what this one knew would be too old.
            self._forget_all()
            return self.every
        now = await self.store.now()
        changed = await self._read_recent()
        ended = 0
        for name in names:
            ended += await self._follow(name, name in changed, now)
        if ended:
            await self.store.end_tick(self.name, self.by, report({"ended": ended}))
        return self.every

    def _forget_all(self) -> None:
        self.tracked.clear()
        self.places.clear()

    async def _read_recent(self) -> set[str]:
        """Takes over the latest states of tracked messages. Returns the workflows that changed."""
        if not self.places:
            return set()
        changed: set[str] = set()
        rows = await self.store.recent(self.position, MAX_ROWS)
        for row in rows:
            self.position = max(self.position, row.position)
            if (place := self.places.get(row.id)) is not None:
                self.tracked[place[0]].states[place[1]] = row.state
                changed.add(place[0])
        return changed

    async def _follow(self, name: str, changed: bool, now: Moment) -> bool:
        """Saves what changed about a workflow. Returns True if it has ended."""
        tenant, scope, id = name.split("/", 2)
        service = Workflows(self.store, self.directory, tenant)
        known = self.tracked.get(name)
        if known is None or now >= known.recount_at:
            known = await self._recount(service, name, scope, id, now)
        elif not changed:
            return False
        if known is None:
            return False
        state = workflows.find_state(known.flow, known.states)
        if state.ended:
            # The end is reported once, so `recent` alone does not decide it.
            known = await self._recount(service, name, scope, id, now)
            if known is None:
                return False
            state = workflows.find_state(known.flow, known.states)
        return await self._save(service, name, known, state, now)

    async def _save(
        self,
        service: Workflows,
        name: str,
        known: TrackedWorkflow,
        state: WorkflowState,
        now: Moment,
    ) -> bool:
        counts = workflows.count_states(known.states)
        if (state, counts) == (known.flow.state, known.flow.counts):
            return False
        flow = replace(
            known.flow, state=state, counts=counts, ended_at=now if state.ended else None
        )
        if state.ended:
            done = await service.end(flow, known.version, now)
        elif state is WorkflowState.BLOCKED and known.flow.state is not state:
            done = await service.block(flow, known.version, now)
        else:
            done = await service.save(flow, known.version)
        if done and not state.ended:
            known.flow, known.version = flow, known.version + 1
        else:
            self._forget(name)
        return done and state.ended

    def _forget(self, name: str) -> None:
        known = self.tracked.pop(name, None)
        if known is not None:
            for node in known.flow.nodes:
                self.places.pop(node.id, None)

    async def _recount(
        self, service: Workflows, name: str, scope: str, id: str, now: Moment
    ) -> TrackedWorkflow | None:
        self._forget(name)
        try:
            flow, version = await service.load(id, scope)
        except NotFound:
            await self.store.delete_documents(OPEN, [name])
            return None
        if flow.state is WorkflowState.BUILDING:
            since = flow.building_at or flow.created_at
            if now - since >= BUILDING_S * MICROS_PER_SECOND:
                await abandon(service, flow, version)
            return None
        if flow.gate:
            # The start may have been interrupted before it opened the gate.
            await open_gate(service, flow)
        if not has_ids(flow):
            if now - flow.created_at < UNFINISHED_START_S * MICROS_PER_SECOND:
                return None
            found = await find_messages(service, flow)
            ids = [
                node.id or found.get(str(place), UNKNOWN) for place, node in enumerate(flow.nodes)
            ]
            flow = with_ids(flow, ids)
        states = await service.read_states([node.id for node in flow.nodes])
        known = TrackedWorkflow(flow, version, states, now + RECOUNT_S * MICROS_PER_SECOND)
        self.tracked[name] = known
        self.places.update({node.id: (name, place) for place, node in enumerate(flow.nodes)})
        return known
