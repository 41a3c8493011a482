"""The context of a run: the message, progress, cancellation, attachments and settlement."""

import builtins
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from datetime import datetime
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from msgspec import Struct

from penstock.errors import InvalidInput, InvalidState
from penstock.model import message
from penstock.model.message import Leased, Settlement
from penstock.model.store_types import Completion
from penstock.rules.settlements import check_settlement
from penstock.rules.validation import replace_surrogates
from penstock.worker.ack_policy import Cancelled
from penstock.worker.retry_strategies import AttemptTimes, RetryStrategy

if TYPE_CHECKING:
    from penstock.artifacts.upload import Content, Upload
    from penstock.model.human import Decision
    from penstock.worker.durable import BlockingSteps, DurableSteps
    from penstock.worker.step_calls import ChildCall, Outcome
    from penstock.worker.steps import StepRun
    from penstock.worker.transaction_steps import TransactionSteps

T = TypeVar("T")


class RunReporter(Protocol):
    """Receives progress, completions and files of a run."""

    def note(self, context: "Context") -> None:
        """Records progress."""

    def complete_on(self, connection: object, item: Completion) -> None: ...

    async def acomplete_on(self, connection: object, item: Completion) -> None: ...

    async def find_seen(self, queue: str, key: str) -> bool: ...

    def spool(self, context: "Context", name: str, content: "Content") -> "Upload | None":
        """Copies the file aside."""

    def open_steps(self, delivery: Leased) -> "StepRun":
        """Opens the durable steps of a run, or raises InvalidState."""


class Context(Struct, eq=False, gc=False):
    """One run of one message. Its methods may be called from any thread."""

    delivery: Leased
    queue: str
    _reporter: "RunReporter"
    # For the worker: lease duration and next renewal, timeout and its deadline, and whether the
    # run has ended.
    lease: float = 0.0
    renew_at: float = inf
    limit: float | None = None
    until: float = inf
    over: bool = False
    # Monotonic times when the run began and ended, or 0.
    started_at: float = 0.0
    ended_at: float = 0.0
    # The store has recorded that the run began.
    begun: bool = False
    # A cancel was requested; the lease was lost.
    cancelled: bool = False
    lost: bool = False
    settled: bool = False
    # The handler completed the message in its own transaction.
    inside: bool = False
    settlement: Settlement | None = None
    attached: "list[Upload] | None" = None
    # When the attempts began, if the retry strategy asks for it.
    times: AttemptTimes | None = None
    # The durable steps of the run, once it has used one.
    steps: "StepRun | None" = None
    # The keys that its completion records.
    keys_seen: tuple[str, ...] = ()
    _note: tuple[float, str | None] | None = None

    @property
    def id(self) -> int:
        return self.delivery.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, starting at 1."""
        return self.delivery.attempts + 1

    @property
    def fence(self) -> int:
        """The fencing token: it grows with every claim. Pass it to systems you write to."""
        return self.delivery.fence

    @property
    def seconds(self) -> float:
        """The duration of the run, once it has ended."""
        return max(0.0, self.ended_at - self.started_at) if self.started_at else 0.0

    @property
    def headers(self) -> dict[str, str]:
        return self.delivery.meta.headers or {}

    @property
    def correlation_id(self) -> str | None:
        return self.delivery.meta.correlation_id

    def progress(self, done: float, total: float = 100.0, note: str | None = None) -> None:
        """Reports progress, which is shown with the message. It is written with a short delay."""
        self._note = (
            compute_percent(done, total),
            None if note is None else replace_surrogates(note),
        )
        self._reporter.note(self)

    def heartbeat(self) -> None:
        """Raises Cancelled if the lease was lost. The worker renews leases automatically."""
        self.raise_if_cancelled()

    def raise_if_cancelled(self) -> None:
        """Raises Cancelled if a cancel was requested or the lease was lost."""
        if self.cancelled or self.lost:
            raise Cancelled("cancelled" if self.cancelled else "the lease was lost")

    def attach(self, name: str, content: "Content") -> None:
        """Attaches a file to the result: bytes, or a path that is copied now.

        Files are stored before the message completes. A run that is retried leaves none.
        """
        if self.inside:
            raise InvalidState("files cannot be attached after complete_in")
        upload = self._reporter.spool(self, name, content)
        if upload is not None:
            self.attached = [*(self.attached or ()), upload]

    async def aattach(self, name: str, content: "Content") -> None:
        """Does the same without blocking the event loop."""
        import asyncio

        await asyncio.to_thread(self.attach, name, content)

    def complete_in(self, connection: object) -> None:
        """Completes the message in your own transaction, atomically with your changes.

        If it is rolled back, the message is nacked with reason ROLLED_BACK.
        """
        self._refuse_attached()
        self._reporter.complete_on(connection, self.make_completion(None))
        self.inside = True

    async def acomplete_in(self, connection: object) -> None:
        """Does the same on an async connection."""
        self._refuse_attached()
        await self._reporter.acomplete_on(connection, self.make_completion(None))
        self.inside = True

    def _refuse_attached(self) -> None:
        if self.attached:
            raise InvalidState("complete_in cannot be used after files were attached")

    async def seen(self, key: str) -> bool:
        """True if a message of this queue completed with the key in the last day.

        The key is recorded when this message completes, in the same transaction.
        """
        found = await self._reporter.find_seen(self.queue, key)
        if key not in self.keys_seen:
            self.keys_seen = (*self.keys_seen, key)
        return found

    # Durable steps. A run that waits ends, and starts again from its stored steps.

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        key: str | None = None,
        retry: RetryStrategy | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        key: str | None = None,
        retry: RetryStrategy | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, T]: ...
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        retry: RetryStrategy | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Calls the function once and stores its result, which later runs return.

        `key` distinguishes steps of one name in a loop whose order may change. A failed step is not
        stored. A function that is no coroutine function runs in a thread.
        """
        return self.durable.step(name, function, args, key, retry, timeout)

    def sleep(
        self, duration: str | float | None = None, *, until: datetime | None = None
    ) -> Coroutine[Any, Any, None]:
        """Waits without a worker: for a duration such as "1d", or until a time."""
        return self.durable.sleep(duration, until)

    @overload
    def signal(
        self, name: str, *, timeout: str | float | None = None
    ) -> Coroutine[Any, Any, Any]: ...
    @overload
    def signal(
        self, name: str, *, timeout: str | float | None = None, type: builtins.type[T]
    ) -> Coroutine[Any, Any, T | None]: ...
    def signal(
        self, name: str, *, timeout: str | float | None = None, type: Any = Any
    ) -> Coroutine[Any, Any, Any]:
        """Waits for a signal and returns its value, or None after the timeout."""
        return self.durable.signal(name, timeout, type)

    def gather(
        self, *calls: "ChildCall", policy: str | int = "all"
    ) -> "Coroutine[Any, Any, list[Outcome]]":
        """Publishes the calls and waits for them: all, any, a number of them, or settled."""
        return self.durable.gather(calls, policy)

    def first(self, *calls: "ChildCall") -> "Coroutine[Any, Any, Outcome | None]":
        """Publishes the calls and returns the first that completed, or None if none did."""
        return self.durable.first(calls)

    def results(self) -> Coroutine[Any, Any, list[Any]]:
        """Returns the results of the tasks that this one waited for in its workflow.

        They are in the order in which the tasks were added. A task that did not complete has None.
        """
        return self.durable.results()

    def approve(
        self,
        question: str | Mapping[str, Any],
        /,
        *,
        timeout: str | float | None = None,
        requester: str = "",
        **parameters: Any,
    ) -> "Coroutine[Any, Any, Decision]":
        """Waits for a person's decision: by the name of a pattern, or by a spec.

        The requester may not decide, unless the spec allows it.
        """
        from penstock.worker.approvals import make_approval

        call = make_approval(question, timeout, requester, parameters)
        return self.durable.approve(call)

    def transaction(self, connection: object) -> "TransactionSteps":
        """Returns steps that commit with your own transaction: effect and record are one.

        The connection is to the database of the queue. You commit or roll back.
        """
        from penstock.worker.transaction_steps import TransactionSteps

        return TransactionSteps(self.durable.run, connection)

    def enqueue(self, call: "ChildCall") -> Coroutine[Any, Any, int]:
        """Publishes a call as a step, once, and returns its id."""
        return self.durable.enqueue(call)

    def callback_url(self, name: str, expires: str | float = "7d") -> Coroutine[Any, Any, str]:
        """Returns a URL to which another system may POST the signal `name` once."""
        return self.durable.callback_url(name, expires)

    @property
    def durable(self) -> "DurableSteps":
        """The durable steps of this run."""
        from penstock.worker.durable import DurableSteps

        if self.steps is None:
            self.steps = self._reporter.open_steps(self.delivery)
        return DurableSteps(self.steps)

    @property
    def sync(self) -> "BlockingSteps":
        """The same steps for handlers that are no coroutine functions."""
        from penstock.worker.durable import BlockingSteps

        return BlockingSteps(self.durable, self.seen)

    def ack(self) -> Awaitable[None]:
        return self._settle(None)

    def nack(self, delay: float | None = None, error: str | None = None) -> Awaitable[None]:
        return self._settle(message.Nack(error, delay))

    def reject(self, error: str | None = None) -> Awaitable[None]:
        return self._settle(message.SettleReject(error))

    def _settle(self, settlement: Settlement | None) -> "Recorded":
        """Records the settlement. Only the first call counts."""
        checked = None if settlement is None else check_settlement(settlement)
        if not self.settled:
            self.settlement = checked
            self.settled = True
        return Recorded()

    def make_completion(self, result: bytes | None) -> Completion:
        return Completion(self.delivery.id, self.delivery.fence, result, self.keys_seen)

    def take_note(self) -> tuple[float, str | None] | None:
        note, self._note = self._note, None
        return note


class Recorded:
    """Lets handlers await `ack`, `nack` and `reject`, which are done when they return."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def compute_percent(done: float, total: float) -> float:
    try:
        share = 100.0 * done / total
    except (TypeError, ZeroDivisionError, OverflowError):
        share = inf
    if not isfinite(share):
        raise InvalidInput(f"progress {done!r} of {total!r} is invalid")
    return min(100.0, max(0.0, share))
