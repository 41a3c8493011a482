"""Subscribers: their messages, handlers and options, routers and publishers."""

import inspect
import warnings
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import (
    Any,
    Generic,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_origin,
)

from msgspec import UNSET, Struct

from penstock.app.enqueue import Enqueuer
from penstock.app.task import Choices
from penstock.errors import InvalidInput
from penstock.model.broadcast import make_child_name
from penstock.rules.validation import check_name
from penstock.worker.ack_policy import AckPolicy, AckRules, CodecError
from penstock.worker.codec import RawBody, Values, read_hints
from penstock.worker.context import Context
from penstock.worker.handler import ExecutorKind, SubscriberHandler
from penstock.worker.retry_strategies import Strategy, TimedStrategy

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
ErrorTypes: TypeAlias = Sequence[type[BaseException]]
# Policies under which an error is never retried.
FINAL_POLICIES = (AckPolicy.REJECT_ON_ERROR, AckPolicy.ACK, AckPolicy.ACK_FIRST)
# FastStream's words for two of the options.
ALIASES = {"ack_policy": "policy", "retry_strategy": "retry"}


class Message(Struct, Generic[T], eq=False):
    """A message whose `body` is decoded by the subscriber's annotation, e.g. `Message[Order]`."""

    context: Context
    _values: Values
    _body: Any = UNSET

    @property
    def body(self) -> T:
        if self._body is UNSET:
            try:
                self._body = self._values.decode(self.context.delivery.body)
            except InvalidInput as error:
                raise CodecError(str(error)) from None
        body: T = self._body
        return body

    @property
    def raw(self) -> bytes:
        return self.context.delivery.body

    @property
    def id(self) -> int:
        return self.context.delivery.id

    @property
    def type(self) -> str:
        return self.context.delivery.type

    @property
    def headers(self) -> dict[str, str]:
        return self.context.headers

    @property
    def attempt(self) -> int:
        return self.context.attempt

    def ack(self) -> Awaitable[None]:
        """Completes the message when the handler ends. It may be awaited."""
        return self.context.ack()

    def nack(self, delay: float | None = None, error: str | None = None) -> Awaitable[None]:
        """Retries the message, without a delay by the retry strategy. It may be awaited."""
        return self.context.nack(delay, error)

    def reject(self, error: str | None = None) -> Awaitable[None]:
        """Moves the message to the dead letters. It may be awaited."""
        return self.context.reject(error)


class SubscriberOptions(Struct, frozen=True, kw_only=True):
    """The options of a subscriber, besides its queues."""

    type: str | None = None
    batch: int | None = None
    # Seconds that the first message of a batch may wait for more.
    batch_wait: float = 0.0
    executor: ExecutorKind | None = None
    policy: AckPolicy | str = AckPolicy.NACK_ON_ERROR
    retry: Strategy | TimedStrategy | None = None
    retry_on: ErrorTypes = ()
    no_retry_on: ErrorTypes = ()
    timeout: float | None = None
    max_workers: int | None = None
    max_deliveries: int | None = None
    # The durable subscription of a broadcast queue, and which messages it gets.
    subscription: str | None = None
    filter: str = ""


class SubscriberChoices(TypedDict, total=False):
    """The options of a subscriber as keywords, for type checkers."""

    type: str | None
    batch: int | None
    batch_wait: float
    executor: ExecutorKind | None
    policy: AckPolicy | str
    retry: Strategy | TimedStrategy | None
    retry_on: ErrorTypes
    no_retry_on: ErrorTypes
    timeout: float | None
    max_workers: int | None
    max_deliveries: int | None
    subscription: str | None
    filter: str
    ack_policy: AckPolicy | str
    retry_strategy: Strategy | TimedStrategy | None


def read_options(choices: dict[str, Any]) -> SubscriberOptions:
    for alias, name in ALIASES.items():
        if alias in choices:
            if name in choices:
                raise InvalidInput(f"{alias} and {name} are the same option; give one of them")
            choices = {**choices, name: choices[alias]}
            del choices[alias]
    names = SubscriberOptions.__struct_fields__
    if wrong := choices.keys() - set(names):
        known = ", ".join((*names, *ALIASES))
        raise InvalidInput(f"no option named {', '.join(sorted(wrong))}; expected one of {known}")
    return SubscriberOptions(**choices)


def read_queues(given: Sequence[str | Sequence[str]]) -> list[str]:
    """Lists queues that are given one by one, or as a list."""
    names = [name for each in given for name in ([each] if isinstance(each, str) else each)]
    for name in names:
        check_name("queue", name)
    if not names or len(set(names)) < len(names):
        raise InvalidInput("a subscriber needs one or more different queues")
    return names


def make_ack_rules(
    policy: AckPolicy | str,
    retry: Strategy | TimedStrategy | None,
    retry_on: ErrorTypes,
    no_retry_on: ErrorTypes,
) -> AckRules:
    if policy not in list(AckPolicy):
        raise InvalidInput(f"no policy {policy!r}; expected one of {', '.join(AckPolicy)}")
    if policy in FINAL_POLICIES and (retry is not None or retry_on or no_retry_on):
        warnings.warn(
            f"retry options have no effect with policy {str(policy)!r}, which never retries",
            stacklevel=4,
        )
    return AckRules(AckPolicy(policy), retry, tuple(retry_on), tuple(no_retry_on))


def make_subscribers(
    function: Callable[..., Any], queues: Sequence[str], options: SubscriberOptions
) -> list[SubscriberHandler]:
    """Makes a handler for each queue, or for its subscription."""
    if options.filter and options.subscription is None:
        raise InvalidInput("filter needs subscription; without one, use type")
    if options.subscription is not None:
        check_name("subscription", options.subscription)
        queues = [make_child_name(queue, options.subscription) for queue in queues]
    rules = make_ack_rules(options.policy, options.retry, options.retry_on, options.no_retry_on)
    made = [make_subscriber(function, queue, options, rules) for queue in queues]
    # The process executor finds the handler here.
    vars(function)["handler"] = lambda: made[0]
    return made


def make_subscriber(
    function: Callable[..., Any], queue: str, options: SubscriberOptions, rules: AckRules
) -> SubscriberHandler:
    name = getattr(function, "__qualname__", repr(function))
    kind = infer_body_type(function, name, options.batch is not None)
    made = SubscriberHandler(
        function,
        queue=queue,
        type=options.type,
        executor=options.executor,
        rules=rules,
        timeout=options.timeout,
        batch=options.batch,
        batch_wait=options.batch_wait,
        max_workers=options.max_workers,
        max_deliveries=options.max_deliveries,
        name=name,
    )
    made.values = RawBody(name) if kind is bytes else Values(kind, f"message for {name!r}")
    made.wrap = Message
    made.filter = options.filter
    return made


class Router:
    """Collects subscribers of one part of an application, for `app.include_router`.

    `prefix` comes before the names of its queues.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.subscribers: list[tuple[Callable[..., Any], list[str], SubscriberOptions]] = []

    def subscriber(
        self, *queues: str | Sequence[str], **choices: Unpack[SubscriberChoices]
    ) -> Callable[[F], F]:
        """Does the same as `app.subscriber`, once the router is included."""
        options = read_options(dict(choices))
        names = [f"{self.prefix}{name}" for name in read_queues(queues)]

        def decorate(function: F) -> F:
            self.subscribers.append((function, names, options))
            return function

        return decorate

    def include_router(self, router: Self) -> None:
        """Adds the subscribers of a nested router, below this one's prefix."""
        for function, queues, options in router.subscribers:
            names = [f"{self.prefix}{name}" for name in queues]
            self.subscribers.append((function, names, options))


def infer_body_type(function: Callable[..., Any], name: str, batch: bool) -> Any:
    """Returns Order for a parameter annotated Message[Order], or list[Message[Order]]."""
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) != 1:
        raise InvalidInput(f"subscriber {name!r} must take one parameter, the message or messages")
    hint = read_hints(function, name).get(parameters[0], Any)
    if batch and hint is not Any:
        hint = (get_args(hint) or (Any,))[0] if get_origin(hint) in (list, Sequence) else None
    if hint in (Any, Message):
        return Any
    if get_origin(hint) is not Message:
        wanted = "a list[Message[...]]" if batch else "a Message[...]"
        raise InvalidInput(f"subscriber {name!r}: its parameter must be {wanted}")
    return get_args(hint)[0]


def wrap_publisher(app: Enqueuer, function: F, choices: Choices) -> F:
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def apublish(*args: Any) -> Any:
            result = await function(*args)
            if result is not None:
                await app.apublish(result, **choices)
            return result

        # The wrapper has the parameters and the result of the function.
        return cast(F, apublish)

    @wraps(function)
    def publish(*args: Any) -> Any:
        result = function(*args)
        if result is not None:
            app.publish(result, **choices)
        return result

    # The same, for a plain function.
    return cast(F, publish)
