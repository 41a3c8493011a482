"""Makes a subscription of a function: what it takes, by its annotation."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, get_args, get_origin

from penstock.codec import Raw, Values, hints_of
from penstock.errors import InvalidInput
from penstock.worker.handler import Executor, Subscription
from penstock.worker.incoming import Message
from penstock.worker.policy import Rules


def subscription(
    function: Callable[..., Any],
    queue: str,
    type: str | None,
    batch: int | None,
    executor: Executor | None,
    rules: Rules,
    timeout: float | None,
) -> Subscription:
    name = getattr(function, "__qualname__", repr(function))
    kind = body_type(function, name, batch is not None)
    made = Subscription(
        function,
        queue=queue,
        type=type,
        executor=executor,
        rules=rules,
        timeout=timeout,
        batch=batch,
        name=name,
    )
    made.values = Raw(name) if kind is bytes else Values(kind, f"message for {name!r}")
    made.wrap = Message
    # Where a process looks for it.
    vars(function)["handler"] = lambda: made
    return made


def body_type(function: Callable[..., Any], name: str, batch: bool) -> Any:
    """Order, of a parameter annotated Message[Order], or list[Message[Order]] for a batch."""
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) != 1:
        raise InvalidInput(f"subscriber {name!r} must take one parameter, the message or messages")
    hint = hints_of(function, name).get(parameters[0], Any)
    if batch and hint is not Any:
        hint = (get_args(hint) or (Any,))[0] if get_origin(hint) in (list, Sequence) else None
    if hint in (Any, Message):
        return Any
    if get_origin(hint) is not Message:
        wanted = "a list[Message[...]]" if batch else "a Message[...]"
        raise InvalidInput(f"subscriber {name!r}: its parameter must be {wanted}")
    return get_args(hint)[0]
