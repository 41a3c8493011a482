"""Handlers: functions that process messages, and how they are called."""

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_args

from penstock.errors import InvalidInput
from penstock.model.fields import MAX_RUNS
from penstock.model.settings import check_range
from penstock.worker.ack_policy import AckPolicy, AckRules, CodecError
from penstock.worker.codec import Arguments, Values
from penstock.worker.context import Context

ExecutorKind = Literal["async", "thread", "process", "shell"]
T = TypeVar("T")
# Messages that wait for a batch to fill hold their leases.
MAX_BATCH_WAIT_S = 60.0
anything = Values(Any, "result")


class App(Protocol):
    """The app of a handler."""

    url: str

    def use(self, url: str) -> None:
        """Switches the app to another store."""


class FunctionReference(NamedTuple):
    """The module and name of a function, and the store URL of its app."""

    module: str
    name: str
    url: str | None


class Handler:
    """Processes the messages of a queue, of one type or (type None) of any."""

    app: App | None = None
    # Its annotation does not accept None as a result.
    must_return = False

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        queue: str,
        type: str | None,
        executor: ExecutorKind | None = None,
        rules: AckRules | None = None,
        timeout: float | None = None,
        batch: int | None = None,
        batch_wait: float = 0.0,
        max_workers: int | None = None,
        max_deliveries: int | None = None,
        name: str = "",
    ) -> None:
        self.function = function
        self.queue = queue
        self.type = type
        self.name = name or type or queue
        self.executor = choose_executor(function, executor, self.name)
        self.rules = rules or AckRules()
        self.timeout = timeout
        self.batch = batch
        self.batch_wait = batch_wait
        self.max_workers = max_workers
        self.max_deliveries = max_deliveries
        self.ack_first = self.rules.policy is AckPolicy.ACK_FIRST
        self.manual = self.rules.policy is AckPolicy.MANUAL
        # A run that returns None is an ack without further checks.
        self.plain = not self.ack_first and not self.manual
        # Its runs are checked for timeout and cancellation.
        self.watched = timeout is not None or self.executor == "process"
        self.check_limits()

    def check_limits(self) -> None:
        batch, batch_wait = self.batch, self.batch_wait
        if batch is not None and not (batch >= 1 and self.executor in ("async", "thread")):
            raise InvalidInput(
                f"{self.name!r}: batch must be 1 or more, on the async or thread executor"
            )
        if batch_wait and (batch is None or not 0 < batch_wait <= MAX_BATCH_WAIT_S):
            raise InvalidInput(
                f"{self.name!r}: batch_wait needs batch, and is at most {MAX_BATCH_WAIT_S:g} s"
            )
        check_range("max_workers", self.max_workers, 1, 10_000)
        check_range("max_deliveries", self.max_deliveries, 1, MAX_RUNS)
        if batch is not None and self.max_workers is not None:
            raise InvalidInput(f"{self.name!r}: a batch handler runs one batch; omit max_workers")

    @property
    def lacks_strategy(self) -> bool:
        """True if errors are to be retried and only the queue says how."""
        return self.rules.policy is AckPolicy.NACK_ON_ERROR and self.rules.strategy is None

    @property
    def reference(self) -> FunctionReference:
        """Locates the function for another process."""
        url = None if self.app is None else self.app.url
        return FunctionReference(self.function.__module__, self.function.__qualname__, url)

    async def run(self, context: Context) -> bytes | None:
        """Runs the handler and returns its encoded result, or None."""
        raise NotImplementedError

    def begin(self, context: Context) -> Awaitable[Any]:
        """Starts a run. `keep` encodes its value. Two steps save an await on the hot path."""
        return self.run(context)

    def keep(self, value: Any) -> bytes:
        kept: bytes = value
        return kept

    def admit(self, context: Context) -> bool:
        """Decides in the handler's thread whether the message may run."""
        return True

    def run_in_thread(self, context: Context) -> bytes | None:
        raise NotImplementedError

    async def run_batch(self, contexts: Sequence[Context]) -> list[BaseException | None]:
        """Runs a batch and returns the error or None of each message."""
        raise NotImplementedError


def choose_executor(
    function: Callable[..., Any], wanted: ExecutorKind | None, name: str
) -> ExecutorKind:
    """Picks the executor: the event loop for coroutine functions, else threads, by default."""
    is_async = inspect.iscoroutinefunction(function)
    if wanted is None:
        return "async" if is_async else "thread"
    if wanted not in get_args(ExecutorKind):
        known = ", ".join(get_args(ExecutorKind))
        raise InvalidInput(f"{name!r}: no executor named {wanted!r}; expected one of {known}")
    if wanted in ("async", "thread") and (wanted == "async") is not is_async:
        kind = "a coroutine function" if is_async else "not a coroutine function"
        raise InvalidInput(f"{name!r} is {kind}, so its executor cannot be {wanted!r}")
    if wanted == "process" and "<locals>" in function.__qualname__:
        raise InvalidInput(
            f"{name!r}: the process executor needs a function at the top level of a module"
        )
    return wanted


class TaskHandler(Handler):
    """Calls a task with the arguments its message carries."""

    arguments: Arguments
    results: Values
    with_context = False

    async def run(self, context: Context) -> bytes | None:
        value = await self.begin(context)
        return self.keep(value) if value is not None or self.must_return else None

    def run_in_thread(self, context: Context) -> bytes | None:
        value = self.begin(context)
        return self.keep(value) if value is not None or self.must_return else None

    def begin(self, context: Context) -> Any:
        try:
            args, kwargs = self.arguments.read(context.delivery.body)
        except InvalidInput as error:
            raise CodecError(str(error)) from None
        if self.with_context:
            return self.function(context, *args, **kwargs)
        return self.function(*args, **kwargs)

    def keep(self, value: Any) -> bytes:
        try:
            return self.results.encode_checked(value)
        except InvalidInput as error:
            raise CodecError(str(error)) from None


class SubscriberHandler(Handler):
    """Calls a subscriber with a message, or with a batch of them."""

    values: Values
    wrap: Callable[[Context, Values], Any]
    # Which messages its durable subscription gets, if it has one.
    filter: str = ""

    async def run(self, context: Context) -> bytes | None:
        value = await self.begin(context)
        return None if value is None else self.keep(value)

    def run_in_thread(self, context: Context) -> bytes | None:
        value = self.begin(context)
        return None if value is None else self.keep(value)

    def begin(self, context: Context) -> Any:
        return self.function(self.wrap(context, self.values))

    def keep(self, value: Any) -> bytes:
        try:
            return anything.encode(value)
        except InvalidInput as error:
            raise CodecError(str(error)) from None

    async def run_batch(self, contexts: Sequence[Context]) -> list[BaseException | None]:
        """Calls the handler, which returns None, or an error or None for each message.

        Messages whose body does not match the annotation are left out.
        """
        messages = [self.wrap(context, self.values) for context in contexts]
        errors: list[BaseException | None] = [
            find_misfit(message, self.values) for message in messages
        ]
        fitting = [number for number, error in enumerate(errors) if error is None]
        outcomes = await self.run_fitting([messages[number] for number in fitting])
        for number, outcome in zip(fitting, outcomes, strict=True):
            errors[number] = outcome
        return errors

    async def run_fitting(self, messages: list[Any]) -> list[BaseException | None]:
        if not messages:
            return []
        if self.executor == "async":
            outcomes = await self.function(messages)
        else:
            outcomes = await run_in_thread(self.function, messages)
        return (
            [None] * len(messages) if outcomes is None else check_outcomes(outcomes, len(messages))
        )


def find_misfit(message: Any, values: Values) -> CodecError | None:
    """Decodes an annotated body, and returns the error if it does not match."""
    if values.kind is not Any:
        try:
            message.body  # noqa: B018 - the property caches the body
        except CodecError as error:
            return error
    return None


def check_outcomes(outcomes: Iterable[Any], count: int) -> list[BaseException | None]:
    listed = list(outcomes)
    if len(listed) != count:
        raise ValueError(f"{len(listed)} outcomes for {count} messages")
    for outcome in listed:
        if outcome is not None and not isinstance(outcome, BaseException):
            raise ValueError(f"an outcome is an error or None, not {type(outcome).__name__}")
    return listed


async def run_in_thread(function: Callable[[Any], T], argument: Any) -> T:
    """Runs the function in a daemon thread: one that hangs does not keep the process alive."""
    import asyncio
    from concurrent.futures import Future

    # A future cannot hold every exception (StopIteration), so errors are passed as values.
    ended: Future[tuple[T, None] | tuple[None, BaseException]] = Future()
    ended.set_running_or_notify_cancel()

    def main() -> None:
        try:
            ended.set_result((function(argument), None))
        except BaseException as error:  # noqa: BLE001 - passed to the caller
            ended.set_result((None, error))

    threading.Thread(target=main, name="penstock-batch", daemon=True).start()
    outcome = await asyncio.wrap_future(ended)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
