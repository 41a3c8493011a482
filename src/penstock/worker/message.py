"""The message that a subscriber receives."""

from typing import Any, Generic, TypeVar

from msgspec import UNSET, Struct

from penstock.errors import InvalidInput
from penstock.worker.codec import Values
from penstock.worker.context import Context
from penstock.worker.policy import Unfit

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
