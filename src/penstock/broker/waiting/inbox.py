"""The inbox: human steps that wait in the queue `_human` until a person decides."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from penstock.broker.audit import note_changes
from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.human_patterns import HumanPatterns, open_inbox_queue
from penstock.broker.waiting.human_webhooks import HumanWebhooks
from penstock.broker.waiting.live_events import make_event_document, make_human_event
from penstock.errors import Busy, Conflict, InvalidInput, NotFound
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.human import Decision, HumanRequest, HumanSpec, InboxState
from penstock.model.message import Draft, Moment, Record, State, Verb
from penstock.model.queue import HUMAN, Queue
from penstock.model.search import Position, Scan, Source
from penstock.model.store_types import AnswerKind, Entry, Published, Query
from penstock.model.waiting import HeldEnd
from penstock.retry_policies import DOCUMENT_SAVE_ATTEMPTS
from penstock.rules import human
from penstock.rules.events import HUMAN_ESCALATED, HUMAN_REMINDED
from penstock.rules.human import (
    Due,
    InboxStatistics,
    InboxStep,
    OpenStep,
    Person,
    describe_end,
    summarise,
)
from penstock.rules.human_spec import check_spec, compute_digest, parse_spec
from penstock.rules.human_steps import (
    REQUESTER,
    RULE_REQUESTER,
    make_abandoned,
    make_step_draft,
    make_step_entry,
)
from penstock.store import Store

STATE = "inbox"
PAGE_SIZE = 500
# The newest open steps, which a list looks at.
MAX_LISTED = 20_000
# Up to this many states are read at once, and otherwise one by one.
MAX_STATES = 1_000
SAMPLE_SIZE = 500
View = Literal["mine", "roles", "all"]
encode = msgspec.json.Encoder().encode


class Inbox:
    """The human steps of one tenant."""

    def __init__(self, store: Store, directory: QueueCache, tenant: str) -> None:
        self.store = store
        self.directory = directory
        self.tenant = tenant
        self.patterns = HumanPatterns(store, tenant)
        self.webhooks = HumanWebhooks(store, tenant)

    async def request(
        self,
        spec: HumanSpec,
        *,
        scope: str = "default",
        requester: str = "",
        correlation_id: str | None = None,
        name: str | None = None,
    ) -> Published:
        """Opens a step that no handler waits for. Its decision is its result."""
        draft = Draft(correlation_id=correlation_id, name=name)
        entry = await self.make_entry(spec, scope=scope, requester=requester, draft=draft)
        (published,) = await self.store.enqueue((entry,), atomic=True)
        if published.code is not None:
            raise InvalidInput(f"the human step was refused: {published.code}")
        return published

    async def make_entry(
        self, spec: HumanSpec, *, scope: str, requester: str, draft: Draft | None = None
    ) -> Entry:
        """Makes the message of a step. It is held until a decision ends it."""
        queue = await self.open_queue(scope)
        return make_step_entry(make_step_draft(spec, requester, draft or Draft()), queue)

    async def admit_step(self, draft: Draft, *, scope: str = "default") -> Entry:
        """Makes the message of a step that a handler waits for."""
        try:
            asked = msgspec.json.decode(draft.body, type=HumanRequest)
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"human step: {error}") from None
        if asked.spec is not None:
            spec = parse_spec(asked.spec)
        else:
            spec = await self.patterns.expand(asked.pattern, asked.parameters, scope=scope)
        if asked.timeout is not None:
            spec = replace(spec, timeout=asked.timeout)
            check_spec(spec)
        requester = asked.requester or draft.publisher or ""
        return await self.make_entry(spec, scope=scope, requester=requester, draft=draft)

    async def open_queue(self, scope: str) -> Queue:
        return await open_inbox_queue(self.store, self.directory, self.tenant, scope)

    # Reading.

    async def list_steps(
        self, person: Person, *, view: View = "mine", scope: str = "default"
    ) -> list[InboxStep]:
        """Lists open steps that this person may see, those due first."""
        found = [each async for each in self._read_open(scope)]
        shown = [each for each in found if is_in_view(each.step, person, view)]
        return sorted(shown, key=lambda each: (each.step.times_out_at, each.step.id))

    async def _read_open(self, scope: str) -> AsyncIterator[InboxStep]:
        try:
            queue = await self.directory.get(self.tenant, scope, HUMAN)
        except NotFound:
            return
        states = await self._read_states()
        after: Position | None = Position()
        seen = 0
        while after is not None and seen < MAX_LISTED:
            page = await self.store.scan(
                Scan(Source.SCHEDULED, (queue.id,), after, limit=PAGE_SIZE)
            )
            for record in await self.store.get_many([head.id for head in page.heads]):
                if record.state is State.SCHEDULED:
                    yield await self._make_step(record, states)
            seen += len(page.heads)
            after = page.next

    async def get(self, id: int, person: Person, *, scope: str = "default") -> InboxStep:
        """Returns a step, open or decided. Steps of others are not found."""
        found = await self.load(id, scope)
        if not human.may_see(found.step, person):
            raise NotFound(f"no human step with id {id}")
        return found

    async def load(self, id: int, scope: str) -> InboxStep:
        """Returns a step for any reader."""
        record = await self.store.get(id)
        if record is not None:
            queue = await self.directory.get_by_id(record.message.queue_id)
            place = (queue.scope.tenant, queue.scope.name, queue.name)
            if place == (self.tenant, scope, HUMAN):
                return await self._make_step(record)
        raise NotFound(f"no human step with id {id}")

    async def _make_step(
        self, record: Record, states: Mapping[int, InboxState] | None = None
    ) -> InboxStep:
        message = record.message
        if states is None:
            state, _ = await self._read_state(message.id)
        else:
            state = states.get(message.id, InboxState())
        result = await self.store.result(message.id) if record.state is State.COMPLETED else None
        return InboxStep(
            step=OpenStep(
                id=message.id,
                spec=msgspec.json.decode(message.body, type=HumanSpec),
                created_at=message.created_at,
                requester=(message.meta.headers or {}).get(REQUESTER, ""),
                state=state,
            ),
            state=record.state,
            correlation_id=message.meta.correlation_id,
            parent_id=message.meta.parent_id,
            ended_at=record.timeline[-1].at if record.state.final and record.timeline else None,
            decision=None if result is None else msgspec.json.decode(result, type=Decision),
        )

    async def _read_states(self) -> dict[int, InboxState] | None:
        """Returns the states of the steps that have one, or None if there are too many."""
        page = await self.store.documents(STATE, limit=MAX_STATES)
        if len(page) == MAX_STATES:
            return None
        return {int(each.name): msgspec.json.decode(each.body, type=InboxState) for each in page}

    async def _read_state(self, id: int) -> tuple[InboxState, int]:
        document = await self.store.document(STATE, str(id))
        if document is None:
            return InboxState(), 0
        return msgspec.json.decode(document.body, type=InboxState), document.version or 0

    # Deciding.

    async def decide(
        self,
        id: int,
        person: Person,
        choice: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        comment: str = "",
        scope: str = "default",
    ) -> InboxStep:
        """Records a choice. The step ends with it, unless more people must agree."""
        now = await self.store.now()
        for _ in range(DOCUMENT_SAVE_ATTEMPTS):
            found, version = await self._load_open(id, person, scope)
            outcome = human.decide(found.step, person, choice, inputs or {}, comment, now)
            # The name `digest` belongs to secrets, which the audit log does not show.
            note_changes({}, {"choice": choice, "spec_digest": compute_digest(found.step.spec)})
            if isinstance(outcome, Decision):
                await self.end(found.step, outcome, scope)
                return await self.load(id, scope)
            if await self._save_state(id, outcome, version):
                return replace(found, step=replace(found.step, state=outcome))
        raise Busy(f"human step {id} is being changed by other requests; try again")

    async def end(self, step: OpenStep, decision: Decision, scope: str) -> None:
        """Ends the step as completed. The first decision counts."""
        end = HeldEnd(
            id=step.id,
            verb=Verb.DECIDE,
            state=State.COMPLETED,
            reason=decision.choice,
            result=encode(decision),
        )
        (answer,) = await self.store.end_held([end])
        if answer.kind is not AnswerKind.DONE:
            raise describe_end(await self.load(step.id, scope))

    async def claim(self, id: int, person: Person, *, scope: str = "default") -> InboxStep:
        """Shows others that this person works on the step."""
        now = await self.store.now()
        return await self._change(id, person, scope, lambda step: human.claim(step, person, now))

    async def release(self, id: int, person: Person, *, scope: str = "default") -> InboxStep:
        return await self._change(id, person, scope, lambda step: human.release(step, person))

    async def delegate(
        self, id: int, person: Person, to: str, *, scope: str = "default"
    ) -> InboxStep:
        return await self._change(id, person, scope, lambda step: human.delegate(step, person, to))

    async def comment(
        self, id: int, person: Person, text: str, *, scope: str = "default"
    ) -> InboxStep:
        now = await self.store.now()
        return await self._change(
            id, person, scope, lambda step: human.comment_on(step, person, text, now)
        )

    async def _change(
        self, id: int, person: Person, scope: str, change: Callable[[OpenStep], InboxState]
    ) -> InboxStep:
        for _ in range(DOCUMENT_SAVE_ATTEMPTS):
            found, version = await self._load_open(id, person, scope)
            state = change(found.step)
            if await self._save_state(id, state, version):
                return replace(found, step=replace(found.step, state=state))
        raise Busy(f"human step {id} is being changed by other requests; try again")

    async def _load_open(self, id: int, person: Person, scope: str) -> tuple[InboxStep, int]:
        # The version is read first: a state that is newer than it is refused, never lost.
        _, version = await self._read_state(id)
        found = await self.get(id, person, scope=scope)
        if found.state is not State.SCHEDULED:
            raise describe_end(found)
        return found, version

    async def _save_state(self, id: int, state: InboxState, version: int) -> bool:
        (saved,) = await self.store.save_documents([make_state(id, state, version)])
        return saved

    # Timeouts.

    async def find_open(self, id: int, *, scope: str) -> InboxStep | None:
        """Returns a step that is not decided yet."""
        try:
            found = await self.load(id, scope)
        except NotFound:
            return None
        return found if found.state is State.SCHEDULED else None

    async def act_on(self, found: InboxStep, due: Due, now: Moment, *, scope: str) -> None:
        """Reminds, escalates, or ends the step as its timeout says. Raises Conflict if late."""
        step = found.step
        match due.action:
            case "decide":
                await self.end(step, human.decide_by_timeout(step, now), scope)
            case "expire":
                end = HeldEnd(id=step.id, verb=Verb.EXPIRE, state=State.EXPIRED, reason="timeout")
                await self.store.end_held([end])
            case "abandon":
                await self.store.end_held([make_abandoned(step.id)])
            case "escalate":
                changed = replace(step, state=human.escalate(step, due.role, now))
                event = self._make_event(HUMAN_ESCALATED, changed, now, scope, due.role)
                await self._save_timed(step, changed.state, event)
            case "remind":
                changed = replace(step, state=human.remind(step, now))
                event = self._make_event(HUMAN_REMINDED, changed, now, scope)
                await self._save_timed(step, changed.state, event)

    def _make_event(
        self, kind: str, step: OpenStep, now: Moment, scope: str, reason: str | None = None
    ) -> Document:
        return make_event_document(
            make_human_event(kind, step, at=now, tenant=self.tenant, scope=scope, reason=reason)
        )

    async def _save_timed(self, step: OpenStep, state: InboxState, event: Document) -> None:
        """Saves a state with its event unless the stored one has changed since it was read."""
        stored, version = await self._read_state(step.id)
        change = Change(guards=(make_state(step.id, state, version),), saves=(event,))
        if stored != step.state or await self.store.advance(change) is None:
            raise Conflict(f"human step {step.id} was changed by another request")

    async def is_abandoned(self, found: InboxStep) -> bool:
        """True if the message whose handler asked has ended."""
        if found.parent_id is None or found.step.requester.startswith(RULE_REQUESTER):
            return False
        parent = await self.store.get(found.parent_id)
        return parent is None or parent.state.final

    # Statistics.

    async def count(self, *, scope: str = "default") -> InboxStatistics:
        """Counts open steps, and the choices of the last decided ones."""
        now = await self.store.now()
        found = [each.step async for each in self._read_open(scope)]
        queue = await self.open_queue(scope)
        ended = await self.store.find(Query((queue.id,), limit=SAMPLE_SIZE))
        return summarise(found, ended, now)


def make_state(id: int, state: InboxState, version: int) -> Document:
    return Document(kind=STATE, name=str(id), body=encode(state), version=version)


def is_in_view(step: OpenStep, person: Person, view: View) -> bool:
    match view:
        case "mine":
            return (
                person.subject in step.spec.assign.users
                or person.subject in step.state.delegates
                or step.state.claimed_by == person.subject
            )
        case "roles":
            return human.is_assigned(step, person)
        case "all":
            return human.may_see(step, person)
