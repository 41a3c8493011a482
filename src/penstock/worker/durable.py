"""The methods of durable steps: for coroutines, and blocking for handlers in threads."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

from penstock.errors import InvalidInput, InvalidState
from penstock.model.human import Decision
from penstock.model.message import MICROS_PER_SECOND
from penstock.rules.durations import parse_seconds
from penstock.worker.approvals import ApprovalCall, make_approval, read_decision
from penstock.worker.codec import Values
from penstock.worker.retry_strategies import RetryStrategy
from penstock.worker.step_calls import (
    ChildCall,
    Outcome,
    anything,
    call_function,
    check_policy,
    check_wait,
    encode_step,
    make_outcome,
    make_values,
    read_until,
)
from penstock.worker.steps import Slot, StepRun
from penstock.worker.transaction_steps import BlockingTransactionSteps

T = TypeVar("T")
PUBLIC_URL = "PENSTOCK_PUBLIC_URL"
MICROSECONDS = Values(int, "callback URL")


class DurableSteps:
    """Takes the slot of a step when it is called, so that concurrent steps keep their order."""

    def __init__(self, run: StepRun) -> None:
        self.run = run

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        key: str | None,
        retry: RetryStrategy | None,
        timeout: float | None,
    ) -> Coroutine[Any, Any, Any]:
        slot = self.run.take(name, key)
        call = partial(call_function, function, args, timeout)
        return self.run.run_step(slot, call, make_values(function, name), retry)

    def sleep(
        self, duration: str | float | None, until: datetime | None
    ) -> Coroutine[Any, Any, None]:
        delay, due_at = read_until(duration, until)
        return self.run.sleep(self.run.take("sleep"), delay, due_at)

    def signal(self, name: str, timeout: str | float | None, type: Any) -> Coroutine[Any, Any, Any]:
        seconds = check_wait(name, timeout)
        values = Values(Any if type is object else type, f"signal {name!r}")
        return self.run.receive(self.run.take(name), seconds, values)

    def gather(
        self, calls: Sequence[ChildCall], policy: str | int
    ) -> Coroutine[Any, Any, list[Outcome]]:
        if not calls:
            return return_nothing()
        kind, need = check_policy(policy, len(calls))
        return self.run.gather(self.run.take("gather"), calls, kind, need)

    async def first(self, calls: Sequence[ChildCall]) -> Outcome | None:
        outcomes = await self.gather(calls, "any")
        return next((each for each in outcomes if each.completed), None)

    async def results(self) -> list[Any]:
        parents = await self.run.waits.read_parents(self.run.delivery)
        return [make_outcome(each, each.state, anything).value for each in parents]

    async def approve(self, call: ApprovalCall) -> Decision:
        slot = self.run.take("approve")
        (outcome,) = await self.run.gather(slot, [call], "settled", 1)
        return read_decision(outcome)

    def enqueue(self, call: ChildCall) -> Coroutine[Any, Any, int]:
        return self.run.publish(self.run.take("enqueue"), call.draft)

    def callback_url(self, name: str, expires: str | float) -> Coroutine[Any, Any, str]:
        base = os.environ.get(PUBLIC_URL, "").rstrip("/")
        if not base:
            raise InvalidInput(
                f"set {PUBLIC_URL} to the public URL of the server to create callback URLs"
            )
        check_wait(name, expires)
        return self.make_url(base, self.run.take("callback_url"), name, parse_seconds(expires))

    async def make_url(self, base: str, slot: Slot, name: str, seconds: float) -> str:
        """Counts the expiry from when the first run asked, so that all runs have the same URL."""
        run = self.run
        record = await run.find(slot, "step")
        if record is None:
            lasts = int(seconds * MICROS_PER_SECOND)
            record = await run.save(slot, "step", encode_step(MICROSECONDS, lasts))
        until = record.at + run.read_value(slot, record, MICROSECONDS)
        return f"{base}/v1/signals/{await run.waits.make_token(run.delivery, name, until)}"


class BlockingSteps:
    """Runs the steps of a handler in a thread. Functions of steps run in that thread."""

    def __init__(
        self, durable: DurableSteps, look_up: Callable[[str], Coroutine[Any, Any, bool]]
    ) -> None:
        self.durable = durable
        self.look_up = look_up

    def seen(self, key: str) -> bool:
        """True if a message of this queue completed with the key in the last day."""
        return self.block(self.look_up(key))

    def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        key: str | None = None,
        retry: RetryStrategy | None = None,
        timeout: float | None = None,
    ) -> T:
        """Calls the function once and stores its result, which later runs return.

        With `retry` or `timeout`, it runs in another thread.
        """
        if retry is not None or timeout is not None:
            work = self.durable.step(name, function, args, key, retry, timeout)
            # `block` returns what any coroutine returned; this one returns the function's T.
            return cast(T, self.block(work))
        run = self.durable.run
        slot, values = run.take(name, key), make_values(function, name)
        record = self.block(run.find(slot, "step"))
        if record is None:
            value = function(*args)
            record = self.block(store_value(run, slot, values, value))
        result: T = run.read_value(slot, record, values)
        return result

    def sleep(self, duration: str | float | None = None, *, until: datetime | None = None) -> None:
        """Waits without a worker: for a duration such as "1d", or until a time."""
        self.block(self.durable.sleep(duration, until))

    def signal(self, name: str, *, timeout: str | float | None = None, type: Any = Any) -> Any:
        """Waits for a signal and returns its value, or None after the timeout."""
        return self.block(self.durable.signal(name, timeout, type))

    def gather(self, *calls: ChildCall, policy: str | int = "all") -> list[Outcome]:
        """Publishes the calls and waits for them: all, any, a number of them, or settled."""
        return self.block(self.durable.gather(calls, policy))

    def first(self, *calls: ChildCall) -> Outcome | None:
        """Publishes the calls and returns the first that completed, or None if none did."""
        return self.block(self.durable.first(calls))

    def results(self) -> list[Any]:
        """Returns the results of the tasks that this one waited for in its workflow."""
        return self.block(self.durable.results())

    def approve(
        self,
        question: str | Mapping[str, Any],
        /,
        *,
        timeout: str | float | None = None,
        requester: str = "",
        **parameters: Any,
    ) -> Decision:
        """Waits for a person's decision: by the name of a pattern, or by a spec."""
        call = make_approval(question, timeout, requester, parameters)
        return self.block(self.durable.approve(call))

    def transaction(self, connection: object) -> BlockingTransactionSteps:
        """Returns steps that commit with your own transaction: effect and record are one."""
        return BlockingTransactionSteps(self.durable.run, connection, self.block)

    def enqueue(self, call: ChildCall) -> int:
        """Publishes a call as a step, once, and returns its id."""
        return self.block(self.durable.enqueue(call))

    def callback_url(self, name: str, expires: str | float = "7d") -> str:
        """Returns a URL to which another system may POST the signal `name` once."""
        return self.block(self.durable.callback_url(name, expires))

    def block(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self.durable.run.loop
        if is_loop_of_this_thread(loop):
            work.close()
            raise InvalidState("context.sync blocks the event loop; await the steps of context")
        # A future of concurrent.futures cannot hold every BaseException of a coroutine.
        ended: Future[tuple[T | None, BaseException | None]] = Future()

        async def run() -> None:
            try:
                ended.set_result((await work, None))
            except BaseException as error:  # noqa: BLE001 - raised in the thread of the handler
                ended.set_result((None, error))

        asyncio.run_coroutine_threadsafe(run(), loop)
        value, error = ended.result()
        if error is not None:
            raise error
        # The future holds a value and no error, or an error and no value.
        return cast(T, value)


async def return_nothing() -> list[Outcome]:
    return []


async def store_value(run: StepRun, slot: Slot, values: Values, value: Any) -> Any:
    return await run.save(slot, "step", encode_step(values, value))


def is_loop_of_this_thread(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
