"""Waits of claimed messages: durable steps and suspension."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec.structs import replace

from penstock.broker.audit import note_changes
from penstock.broker.consume import expect
from penstock.broker.interfaces.admin import AdminInterface
from penstock.broker.interfaces.broker import Held
from penstock.broker.publish import REFUSALS
from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.parents import read_ends, read_parents
from penstock.broker.waiting.signals import Signals
from penstock.errors import (
    ChildRefused,
    InvalidState,
    LockLost,
    NotFound,
    PenstockError,
    StoreError,
    WaitsForItself,
)
from penstock.model.message import Draft, Flag, Moment, State, Verb
from penstock.model.store_types import Answer, AnswerKind, Entry, Lock, Published
from penstock.model.waiting import (
    AwaitedOutcome,
    StepLog,
    StepRecord,
    StepSave,
    StepSaved,
    StoredSignal,
    Wait,
    WaitPlan,
)
from penstock.retry_policies import SAVE_STEP
from penstock.rules import validation
from penstock.rules.waiting import (
    MAX_STEPS,
    WaitRequest,
    check_step_size,
    decide_wait,
    end_full,
    refuse_own_key,
)
from penstock.store import Store

MAX_ID = 2**63 - 1
AdmitDraft = Callable[..., Awaitable[Entry]]


class Waits:
    """Lets runs wait, and lets others resume them."""

    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        tenant: str,
        admin: AdminInterface,
        admit: AdmitDraft,
    ) -> None:
        self.store = store
        self.directory = directory
        self.tenant = tenant
        self.admin = admin
        self.admit = admit
        signals = Signals(store, directory, tenant, admin, self.resume_soon)
        self.signal = signals.send
        self.signal_by_token = signals.send_by_token
        self.make_token = signals.make_token
        self.looking: asyncio.Task[None] | None = None
        self.again = False

    # Runs.

    async def read_steps(self, held: Held) -> StepLog:
        return await self.store.steps(held.id)

    async def read_signals(self, held: Held) -> list[StoredSignal]:
        return await self.store.signals(held.id)

    async def save_step(
        self,
        held: Held,
        step: StepRecord,
        *,
        draft: Draft | None = None,
        consumes: int | None = None,
        scope: str = "default",
    ) -> StepRecord:
        """Stores a step and returns it as stored. Raises LockLost if the lease is gone."""
        check_step_size(step.name, step.body)
        if step.position > MAX_STEPS:
            await self._limit_steps(held)
        entry = None if draft is None else await self.admit(draft, scope=scope)
        save = StepSave(id=held.id, fence=held.fence, step=step, entry=entry, consumes=consumes)
        retries = SAVE_STEP.begin()
        while True:
            try:
                (saved,) = await self.store.save_steps([save])
            except ChildRefused as error:
                raise explain_refusal(error, [draft] if draft else []) from None
            if saved.kind is not AnswerKind.BUSY or not await retries.again():
                break
        return expect_saved(saved, held.id)

    async def _limit_steps(self, held: Held) -> None:
        """Ends a message that has stored as many steps as it may since its last redrive."""
        (lease,) = await self.store.leases([Lock(held.id, held.fence)])
        if lease is None:
            return
        move = end_full(lease, await self.store.wait_facts(held.id, held.fence))
        if move is not None:
            await self.store.settle([move])
            raise LockLost(
                f"message {held.id} has stored {MAX_STEPS} steps, the maximum; it is dead with"
                " reason max_steps"
            )

    def save_step_on(self, connection: object, held: Held, step: StepRecord) -> StepRecord:
        """Stores a step when the caller commits. Raises LockLost."""
        save = StepSave(id=held.id, fence=held.fence, step=step)
        return expect_saved(self.store.save_step_on(connection, save), held.id)

    async def asave_step_on(self, connection: object, held: Held, step: StepRecord) -> StepRecord:
        """Does the same on an async connection."""
        save = StepSave(id=held.id, fence=held.fence, step=step)
        return expect_saved(await self.store.asave_step_on(connection, save), held.id)

    async def suspend(self, held: Held, plan: WaitPlan, *, scope: str = "default") -> Answer:
        """Ends the delivery until all holds of the plan have ended."""
        for step in plan.steps:
            check_step_size(step.name, step.body)
        children = [await self.admit(draft, scope=scope) for draft in plan.children]
        request = WaitRequest(
            reason=plan.reason,
            holds=plan.holds,
            steps=plan.steps,
            children=tuple(children),
            children_step=plan.children_step,
        )
        retries = SAVE_STEP.begin()
        while True:
            try:
                answer = await self._suspend_once(held, request)
            except ChildRefused as error:
                raise explain_refusal(error, plan.children) from None
            if answer.kind not in (AnswerKind.BUSY, AnswerKind.CHANGED):
                break
            if not await retries.again():
                break
        if answer.kind is AnswerKind.DONE:
            self.resume_soon()
        return answer

    async def _suspend_once(self, held: Held, request: WaitRequest) -> Answer:
        (lease,) = await self.store.leases([Lock(held.id, held.fence)])
        if lease is None:
            lock = Lock(held.id, held.fence)
            return (await self.store.explain([lock], [Verb.WAIT]))[0]
        if lease.flags & Flag.FROM_DEAD:
            raise InvalidState(f"message {held.id} was claimed from the dead letters; redrive it")
        refuse_own_key(lease, request.children)
        facts = await self.store.wait_facts(held.id, held.fence)
        queue = await self.directory.get_by_id(lease.queue_id)
        decided = decide_wait(lease, request, facts, queue.settings.max_waits)
        if isinstance(decided, Wait):
            return await self.store.wait(decided)
        return (await self.store.settle([decided]))[0]

    async def read_outcomes(self, held: Held) -> list[AwaitedOutcome]:
        """Returns how the messages that one waited for have ended, with their results."""
        return await read_ends(self.store, held.id, await self.store.edges(held.id))

    async def read_parents(self, held: Held) -> list[AwaitedOutcome]:
        """Returns how the messages that one waited for before its first delivery have ended.

        They are in the order of their nodes in the workflow.
        """
        return await read_parents(self.store, self.directory, held.id)

    async def resume_held(self) -> bool:
        """Resumes messages whose wait is over. True if there were any."""
        looked = await self.store.resume_held()
        return looked.resumed > 0 or looked.more

    def resume_soon(self) -> None:
        """Resumes messages in the background, without waiting for the scheduler."""
        if self.looking is not None and not self.looking.done():
            self.again = True
            return
        self.looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        self.again = True
        try:
            while self.again:
                self.again = (await self.store.resume_held()).more or False
        except StoreError:
            # The scheduler looks every second, and reports outages.
            self.again = False

    async def close(self) -> None:
        if self.looking is not None and not self.looking.done():
            self.looking.cancel()
            with suppress(asyncio.CancelledError):
                await self.looking

    # Users.

    async def steps(self, reference: int | str, *, scope: str = "default") -> StepLog:
        """Lists the stored steps of a message. A sleep is done when it is over."""
        record = await self.admin.get(reference, scope=scope)
        log = await self.store.steps(record.message.id)
        return replace(log, steps=[end_sleep(step, log.now) for step in log.steps])

    async def redrive_from(
        self, reference: int | str, step: str, *, scope: str = "default"
    ) -> tuple[Published, list[StepRecord]]:
        """Redrives a dead message without its steps from the first one of that name on."""
        record = await self.admin.get(reference, scope=scope)
        if record.state is not State.DEAD:
            raise InvalidState(f"message {record.message.id} is {record.state}, not dead")
        found = (await self.store.steps(record.message.id)).steps
        first = next((each.position for each in found if each.name == step), None)
        if first is None:
            names = ", ".join(dict.fromkeys(each.name for each in found)) or "none"
            raise NotFound(
                f"message {record.message.id} has no step {validation.clip(step)}; it has: {names}"
            )
        dropped = [each.name for each in found if each.position >= first]
        note_changes({"steps": dropped}, {"steps": []})
        forgotten = await self.store.forget_steps(record.message.id, first)
        return await self.admin.redrive(record.message.id, scope=scope), forgotten


def end_sleep(step: StepRecord, now: Moment) -> StepRecord:
    over = step.kind == "sleep" and step.due_at is not None and step.due_at <= now
    return replace(step, done=True) if over else step


def expect_saved(saved: StepSaved, id: int) -> StepRecord:
    """Returns the step as stored, or raises the error of the answer."""
    expect(Answer(saved.kind, State.CLAIMED), id)
    assert saved.step is not None
    return saved.step


def explain_refusal(error: ChildRefused, drafts: object) -> PenstockError:
    listed = list(drafts) if isinstance(drafts, (list, tuple)) else []
    queue = listed[error.place].queue if error.place < len(listed) else "?"
    if error.refused == WaitsForItself.code:
        return WaitsForItself(
            f"child {error.place + 1} in queue {queue!r} has the unique or dedup key of the message"
            " that waits for it; give it another key"
        )
    known = REFUSALS.get(error.refused)
    text = f"child {error.place + 1} in queue {queue!r} was refused: {error.refused}"
    return known(text) if known is not None else error
