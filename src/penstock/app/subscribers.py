"""Subscribers: the messages they get, and their handlers made from annotated functions."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, get_args, get_origin

from msgspec import UNSET, Struct

from penstock.errors import InvalidInput
from penstock.worker.codec import RawBody, Values, read_hints
from penstock.worker.context import Context
from penstock.worker.handler import ExecutorKind, SubscriberHandler
from penstock.worker.policy import AckRules, Unfit

T = TypeVar("T")


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
                raise Unfit(str(error)) from None
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

    def ack(self) -> None:
        self.context.ack()

    def nack(self, delay: float | None = None, error: str | None = None) -> None:
        self.context.nack(delay, error)

    def reject(self, error: str | None = None) -> None:
        self.context.reject(error)


def make_subscriber(
    function: Callable[..., Any],
    queue: str,
    type: str | None,
    batch: int | None,
    executor: ExecutorKind | None,
    rules: AckRules,
    timeout: float | None,
    batch_wait: float = 0.0,
) -> SubscriberHandler:
    name = getattr(function, "__qualname__", repr(function))
    kind = infer_body_type(function, name, batch is not None)
    made = SubscriberHandler(
        function,
        queue=queue,
        type=type,
        executor=executor,
        rules=rules,
        timeout=timeout,
        batch=batch,
        batch_wait=batch_wait,
        name=name,
    )
    made.values = RawBody(name) if kind is bytes else Values(kind, f"message for {name!r}")
    made.wrap = Message
    # The process executor finds the handler here.
    vars(function)["handler"] = lambda: made
    return made


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
