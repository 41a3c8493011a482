"""Steps whose effect in the caller's database and record are one transaction."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.errors import LockLost, StepTooLarge
from penstock.model.waiting import StepRecord
from penstock.rules.waiting import MAX_STEPS
from penstock.worker.ack_policy import Cancelled
from penstock.worker.step_calls import encode_step, make_values
from penstock.worker.steps import Slot, StepRun

T = TypeVar("T")
Block = Callable[[Coroutine[Any, Any, Any]], Any]


class TransactionSteps:
    """The steps of a coroutine on one connection with an open transaction."""

    def __init__(self, run: StepRun, connection: object) -> None:
        self.run = run
        self.connection = connection

    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, key: str | None = None
    ) -> Any:
        """Calls the function once per commit and returns its result, stored or new."""
        run = self.run
        slot, values = run.take(name, key), make_values(function, name)
        record = await run.find_committed(slot)
        if record is None:
            value = function(*args)
            value = await value if inspect.isawaitable(value) else value
            made = make_record(run, slot, encode_step(values, value))
            try:
                record = await run.waits.asave_step_on(self.connection, run.delivery, made)
            except LockLost:
                raise Cancelled("the lease was lost; the transaction must not commit") from None
            run.stored_bytes += len(record.body)
        return run.read_value(slot, record, values)


class BlockingTransactionSteps:
    """The same for a handler in a thread, on a connection of that thread."""

    def __init__(self, run: StepRun, connection: object, block: Block) -> None:
        self.run = run
        self.connection = connection
        self.block = block

    def step(
        self, name: str, function: Callable[..., T], /, *args: Any, key: str | None = None
    ) -> T:
        """Calls the function once per commit and returns its result, stored or new."""
        run = self.run
        slot, values = run.take(name, key), make_values(function, name)
        record: StepRecord | None = self.block(run.find_committed(slot))
        if record is None:
            made = make_record(run, slot, encode_step(values, function(*args)))
            try:
                record = run.waits.save_step_on(self.connection, run.delivery, made)
            except LockLost:
                raise Cancelled("the lease was lost; the transaction must not commit") from None
            run.stored_bytes += len(record.body)
        result: T = run.read_value(slot, record, values)
        return result


def make_record(run: StepRun, slot: Slot, body: bytes) -> StepRecord:
    run.check_room(slot, body)
    if slot.position > MAX_STEPS:
        raise StepTooLarge(
            f"step {slot.name!r} is number {slot.position} of its run; only the first {MAX_STEPS}"
            " can be steps of a transaction"
        )
    return StepRecord(name=slot.name, key=slot.key, position=slot.position, body=body)
