"""Durable steps of a run: their records, waits for a time, a signal or other messages."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn

from msgspec.structs import replace

from penstock.broker.interfaces.waiting import WaitsInterface
from penstock.errors import InvalidInput, LockLost, StepTooLarge
from penstock.model.message import Draft, Flag, Leased, Moment
from penstock.model.waiting import (
    AwaitedOutcome,
    Hold,
    StepKind,
    StepRecord,
    StoredSignal,
    WaitPlan,
)
from penstock.rules import validation
from penstock.rules.waiting import check_step_size, decide_after
from penstock.worker.ack_policy import Cancelled
from penstock.worker.codec import Values
from penstock.worker.retry_strategies import RetryStrategy
from penstock.worker.step_calls import (
    ChildCall,
    Outcome,
    encode_step,
    make_after,
    make_outcome,
    try_again,
)

MAX_NAME_LENGTH = 200
MAX_MESSAGE_BYTES = 64_000_000
# True inside the function of a step, which must not wait for its own end.
INSIDE_STEP: ContextVar[bool] = ContextVar("inside_step", default=False)


class Suspend(BaseException):
    """Ends a run that waits. Do not catch it: the run resumes from its stored steps."""


class CodeChanged(BaseException):
    """A stored step does not fit the code any more. The message is parked."""


class Slot(NamedTuple):
    """The key of a stored step: its name, its occurrence or key, and its place in the run."""

    name: str
    key: str
    position: int


class StepRun:
    """The steps of one run. Only its async methods talk to the store, on the worker's loop."""

    def __init__(
        self, delivery: Leased, waits: WaitsInterface, scope: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.delivery = delivery
        self.waits = waits
        self.scope = scope
        self.loop = loop
        self.plan: WaitPlan | None = None
        self.records: dict[tuple[str, str], StepRecord] | None = None
        # All records are read, also those that set no flag.
        self.complete = False
        self.reading = asyncio.Lock()
        self.now: Moment = 0
        self.stored_bytes = 0
        # Signals that were read with the steps, and those that this run has received.
        self.arrived: list[StoredSignal] = []
        self.received: set[int] = set()
        self.counts: dict[str, int] = {}
        self.position = 0
        # Steps that have begun and are not stored yet.
        self.running = 0
        self.at_rest = asyncio.Event()
        # A step failed while the run waited for it before its suspension.
        self.failed = False

    # Slots and records.

    def take(self, name: str, key: str | None = None) -> Slot:
        """Takes the slot of a call. Its occurrence is counted when it is called."""
        check_name("step name", name)
        self.position += 1
        if key is not None:
            check_name("step key", key)
            return Slot(name, f"k:{key}", self.position)
        self.counts[name] = self.counts.get(name, 0) + 1
        return Slot(name, str(self.counts[name]), self.position)

    async def find(self, slot: Slot, kind: StepKind) -> StepRecord | None:
        """Returns the record of a step, if it has one. The first call reads all of them.

        Raises Suspend once the run is about to wait, so that no other step begins.
        """
        async with self.reading:
            if self.records is None:
                await self.read()
        if self.plan is not None:
            await self.suspend(self.plan)
        assert self.records is not None
        record = self.records.get((slot.name, slot.key))
        if record is not None and record.kind != kind:
            raise CodeChanged(
                f"step {slot.name!r} ({slot.key}) was stored by {record.kind!r}, not {kind!r}"
            )
        return record

    async def find_committed(self, slot: Slot) -> StepRecord | None:
        """Returns the record of a step that commits with the caller's transaction.

        Such a step sets no flag, so the first one of a run reads the records in any case.
        """
        async with self.reading:
            if not self.complete:
                await self.read_all()
        return await self.find(slot, "step")

    async def read(self) -> None:
        if self.delivery.flags & Flag.STEPS:
            await self.read_all()
        else:
            self.records = {}

    async def read_all(self) -> None:
        self.complete = True
        stored = await self.waits.read_steps(self.delivery)
        self.now, self.arrived = stored.now, stored.signals
        self.stored_bytes = sum(len(step.body) for step in stored.steps)
        self.records = {(step.name, step.key): step for step in stored.steps}

    async def save(
        self,
        slot: Slot,
        kind: StepKind,
        body: bytes = b"",
        *,
        draft: Draft | None = None,
        consumes: int | None = None,
    ) -> StepRecord:
        """Stores a step that is done, and returns it as stored."""
        assert self.records is not None
        self.check_room(slot, body)
        record = StepRecord(
            name=slot.name, key=slot.key, kind=kind, position=slot.position, body=body
        )
        try:
            with self.hold_open():
                stored = await self.waits.save_step(
                    self.delivery, record, draft=draft, consumes=consumes, scope=self.scope
                )
        except LockLost as error:
            raise Cancelled(f"the lease was lost: {error}") from None
        self.records[slot.name, slot.key] = stored
        self.stored_bytes += len(stored.body)
        return stored

    def check_room(self, slot: Slot, body: bytes) -> None:
        check_step_size(slot.name, body)
        if self.stored_bytes + len(body) > MAX_MESSAGE_BYTES:
            raise StepTooLarge(f"the steps of message {self.delivery.id} exceed 64 MB")

    def read_value(self, slot: Slot, record: StepRecord, values: Values) -> Any:
        try:
            return values.decode(record.body)
        except InvalidInput as error:
            raise CodeChanged(
                f"step {slot.name!r} ({slot.key}) has a stored value that does not fit: {error}"
            ) from None

    async def suspend(self, plan: WaitPlan) -> NoReturn:
        """Lets no other step begin, waits for those that are running, then ends the run."""
        self.plan = self.plan or plan
        while self.running and not INSIDE_STEP.get():
            self.at_rest.clear()
            await self.at_rest.wait()
        raise Suspend

    @contextmanager
    def hold_open(self) -> Iterator[None]:
        """Keeps the run from being suspended until a step that has begun is stored or failed."""
        self.running += 1
        inside = INSIDE_STEP.set(True)
        try:
            yield
        except Exception:
            self.failed = self.plan is not None
            raise
        finally:
            INSIDE_STEP.reset(inside)
            self.running -= 1
            if not self.running:
                self.at_rest.set()

    # Steps.

    async def run_step(
        self,
        slot: Slot,
        call: Callable[[], Awaitable[Any]],
        values: Values,
        retry: RetryStrategy | None,
    ) -> Any:
        record = await self.find(slot, "step")
        if record is None:
            with self.hold_open():
                value = await try_again(call, retry)
                record = await self.save(slot, "step", encode_step(values, value))
        return self.read_value(slot, record, values)

    async def sleep(self, slot: Slot, delay: float | None, due_at: Moment | None) -> None:
        record = await self.find(slot, "sleep")
        if record is not None:
            if record.due_at is None or record.due_at <= self.now:
                return
            delay, due_at = None, record.due_at
        step = StepRecord(
            name=slot.name, key=slot.key, kind="sleep", position=slot.position, done=False
        )
        hold = Hold(kind="moment", delay=delay, due_at=due_at)
        await self.suspend(WaitPlan(reason="sleep", holds=(hold,), steps=(step,)))

    async def receive(self, slot: Slot, timeout: float | None, values: Values) -> Any:
        record = await self.find(slot, "signal")
        if record is None or not record.done:
            record = await self.take_signal(slot, record, timeout)
        return self.read_value(slot, record, values) if record.body else None

    async def take_signal(
        self, slot: Slot, record: StepRecord | None, timeout: float | None
    ) -> StepRecord:
        """Records the oldest signal of the name, or that none came in time."""
        found = self.pick_signal(slot.name, self.arrived)
        if found is None:
            stored = await self.waits.read_signals(self.delivery)
            found = self.pick_signal(slot.name, stored)
        if found is not None:
            return await self.save(slot, "signal", found.body, consumes=found.id)
        due_at = None if record is None else record.due_at
        if due_at is not None and due_at <= self.now:
            return await self.save(slot, "signal")
        step = StepRecord(
            name=slot.name, key=slot.key, kind="signal", position=slot.position, done=False
        )
        hold = Hold(
            kind="signal", name=slot.name, due_at=due_at,
            delay=timeout if record is None else None,
        )  # fmt: skip
        return await self.suspend(
            WaitPlan(reason=f"signal:{slot.name}", holds=(hold,), steps=(step,))
        )

    def pick_signal(self, name: str, signals: Sequence[StoredSignal]) -> StoredSignal | None:
        """Returns the oldest signal of the name that no other call has received."""
        for signal in signals:
            if signal.name == name and not signal.consumed and signal.id not in self.received:
                self.received.add(signal.id)
                return signal
        return None

    async def gather(
        self, slot: Slot, calls: Sequence[ChildCall], policy: str, need: int
    ) -> list[Outcome]:
        record = await self.find(slot, "gather")
        if record is None:
            await self.suspend(self.make_family(slot, calls, policy, need))
        assert record is not None
        outcomes = {each.id: each for each in await self.waits.read_outcomes(self.delivery)}
        if not record.done:
            record = await self.close_family(slot, record, outcomes, policy, need)
        ids, states = json.loads(record.body)
        if len(ids) != len(calls):
            raise CodeChanged(f"gather had {len(ids)} calls, and now has {len(calls)}")
        return [
            make_outcome(outcomes.get(id, AwaitedOutcome(id)), state, call.task.results)
            for id, state, call in zip(ids, states, calls, strict=True)
        ]

    def make_family(
        self, slot: Slot, calls: Sequence[ChildCall], policy: str, need: int
    ) -> WaitPlan:
        after = make_after(tuple(range(len(calls))), (), policy, need)
        step = StepRecord(
            name=slot.name, key=slot.key, kind="gather", position=slot.position, done=False
        )
        return WaitPlan(
            reason=f"after:{len(calls)}",
            holds=(Hold(kind="after", after=after),),
            children=tuple(self.adopt(call.draft) for call in calls),
            children_step=step,
        )

    async def close_family(
        self,
        slot: Slot,
        record: StepRecord,
        outcomes: dict[int, AwaitedOutcome],
        policy: str,
        need: int,
    ) -> StepRecord:
        """Records how the children have ended, or waits for them again."""
        ids = json.loads(record.body)
        states = [outcomes[id].state if id in outcomes else None for id in ids]
        counts: dict[str | None, int] = {}
        for state in states:
            counts[state] = counts.get(state, 0) + 1
        if decide_after(policy, need, counts) is None:
            hold = Hold(kind="after", after=make_after((), tuple(ids), policy, need))
            await self.suspend(WaitPlan(reason=f"after:{len(ids)}", holds=(hold,)))
        return await self.save(slot, "gather", json.dumps([ids, states]).encode())

    async def publish(self, slot: Slot, draft: Draft) -> int:
        record = await self.find(slot, "enqueue")
        if record is None:
            record = await self.save(slot, "enqueue", draft=self.adopt(draft))
        id: int = json.loads(record.body)
        return id

    def adopt(self, draft: Draft) -> Draft:
        """Names this message as the parent of the one that it publishes, which inherits the rules
        of its lineage and its publisher."""
        meta = self.delivery.meta
        return replace(
            draft,
            parent_id=self.delivery.id,
            hops=meta.hops + 1,
            path=meta.path,
            publisher=meta.publisher,
        )


def check_name(what: str, name: str) -> None:
    """Raises StepTooLarge, which no retry would change."""
    try:
        validation.check_text(what, name, MAX_NAME_LENGTH)
    except InvalidInput as error:
        raise StepTooLarge(str(error)) from None
