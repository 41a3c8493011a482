"""What may be an argument or a result: it comes back as it was, or is refused."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from penstock import Penstock
from penstock.errors import InvalidInput
from penstock.worker.codec import Arguments, Values
from tests.app.scenes import working


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Circle(Point):
    radius: float = 1.0


class Order(msgspec.Struct):
    item: str
    points: list[Point] = []


class Customer(pydantic.BaseModel):
    name: str
    since: datetime
    favourite: Point | None = None


class Secret(pydantic.BaseModel):
    word: pydantic.SecretStr


class Colour(Enum):
    RED = "red"


class Opaque:
    """Nothing knows how to store it."""


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def through(value: Any, kind: Any) -> Any:
    """The argument as the function gets it."""

    def task(value: Any) -> None: ...

    task.__annotations__["value"] = kind
    arguments = Arguments(task, "task")
    (read,), _ = arguments.read(arguments.encode((value,), {}))
    return read


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, None),
        (True, bool),
        (7, int),
        (2.5, float),
        (3, float),
        ("naïve ☃", str),
        ([1, [2]], list[Any]),
        ({"a": {"b": [None]}}, dict[str, Any]),
        ([{"a": 1}], Any),
        ("x", object),
        (Point(1, 2.0), Point),
        (Order("pipe", [Point(1)]), Order),
        (Customer(name="Ada", since=NOON, favourite=Point(1)), Customer),
        ([Customer(name="Ada", since=NOON)], list[Customer]),
        (NOON, datetime),
        (datetime(2026, 3, 1), datetime),
        (date(2026, 3, 1), date),
        (timedelta(seconds=90), timedelta),
        (UUID(int=5), UUID),
        (Decimal("1.10"), Decimal),
        (Colour.RED, Colour),
        (b"\x00\xff", bytes),
        ({1, 2}, set[int]),
        ((1, "a"), tuple[int, str]),
        ({3: "c"}, dict[int, str]),
        (2**70, int),
    ],
)
def test_a_value_comes_back_as_it_was(value: Any, kind: Any) -> None:
    read = through(value, kind)
    assert (read, type(read)) == (value, float if kind is float else type(value))


def test_a_tuple_is_a_sequence_and_comes_back_as_one() -> None:
    assert through((1, 2), Sequence[int]) == [1, 2]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (Opaque(), Any, "Opaque cannot be stored"),
        (Opaque(), Opaque, "Opaque cannot be stored"),
        ([Opaque()], list[Any], "Opaque cannot be stored"),
        (NOON, Any, "datetime is not a JSON type; annotate the parameter"),
        ([NOON], Any, "list is not a JSON type"),
        ({1: 2}, Any, "dict is not a JSON type"),
        ((1, 2), Any, "tuple is not a JSON type"),
        ({1, 2}, object, "set is not a JSON type"),
        ([NOON], list[Any], "would come back as"),
        ({"a": NOON}, dict[str, Any], "would come back as"),
        (Circle(1, 2.0, 3.0), Point, "would come back as"),
        (Secret(word=pydantic.SecretStr("x")), Secret, "would come back as"),
        (math.nan, Any, "would come back as None"),
        (math.inf, float, "Expected `float`"),
        ("7", int, "Expected `int`, got `str`"),
        (True, int, "Expected `int`, got `bool`"),
        (None, str, "Expected `str`, got `null`"),
        ({"x": "a"}, Point, "Expected `int`"),
        ("\ud800", str, "surrogates|utf-8"),
        (-1, Annotated[int, msgspec.Meta(ge=0)], ">= 0"),
    ],
)
def test_anything_else_is_refused_by_name(value: Any, kind: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match="task 'task'") as refused:
        through(value, kind)
    assert refused.match(text)


def test_a_value_within_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidInput):
        through(endless, list[Any])


def test_a_refusal_names_the_argument() -> None:
    def send(to: str, when: Any = None) -> None: ...

    with pytest.raises(InvalidInput, match="task 'send', argument 'when': Opaque"):
        Arguments(send, "send").encode(("a",), {"when": Opaque()})


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "missing a required argument: 'to'"),
        (("a", 1, 2), {}, "too many positional arguments"),
        (("a",), {"too": 1}, "unexpected keyword argument 'too'"),
        (("a",), {"to": "b"}, "multiple values for argument 'to'"),
    ],
)
def test_arguments_that_do_not_fit_the_signature_are_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], text: str
) -> None:
    def send(to: str, count: int = 1) -> None: ...

    with pytest.raises(InvalidInput, match=text):
        Arguments(send, "send").encode(args, kwargs)


def test_what_was_not_given_is_the_default_of_the_function_that_runs() -> None:
    def send(to: str, tags: Sequence[str] = ("a",), *, count: int = 3) -> None: ...

    arguments = Arguments(send, "send")
    assert arguments.encode(("x",), {}) == b'{"to":"x"}'
    assert arguments.read(b'{"to":"x"}') == (("x", ("a",)), {"count": 3})


def test_a_body_with_an_argument_unknown_here_is_refused() -> None:
    def send(to: str) -> None: ...

    with pytest.raises(InvalidInput, match="unknown field `cc`"):
        Arguments(send, "send").read(b'{"to":"x","cc":"y"}')


def test_a_task_without_parameters_needs_no_body() -> None:
    def tick() -> None: ...

    assert Arguments(tick, "tick").read(b"") == ((), {})


def positional(a: int, /) -> None: ...


def many(*a: int) -> None: ...


def any_named(**a: int) -> None: ...


def two_kinds(a: Point | Order | Circle) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (positional, "positional-only"),
        (many, r"\*args"),
        (any_named, r"\*\*kwargs"),
        (two_kinds, "its annotation cannot be stored"),
    ],
)
def test_a_function_that_cannot_be_enqueued_is_refused_when_it_is_declared(
    function: Callable[..., Any], text: str
) -> None:
    with pytest.raises(InvalidInput, match=text):
        Penstock("sqlite://").task(function)


def test_an_annotation_that_means_nothing_is_refused() -> None:
    def send(to: str) -> None: ...

    send.__annotations__["to"] = "Nowhere"
    with pytest.raises(InvalidInput, match="Nowhere"):
        Penstock("sqlite://").task(send)


def test_a_result_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Opaque cannot be stored"):
        Values(Any, "result").encode(Opaque())


@pytest.mark.anyio
async def test_models_go_to_the_worker_and_results_come_back(app: Penstock) -> None:
    @app.task
    async def move(order: Order, customer: Customer, when: datetime) -> list[Point]:
        assert (order.item, customer.name, when) == ("pipe", "Ada", NOON)
        return order.points

    @app.task
    async def copy(customer: Customer) -> Customer:
        return customer

    ada = Customer(name="Ada", since=NOON)
    async with working(app):
        moved = await move.aenqueue(Order("pipe", [Point(1, 2.0)]), ada, NOON)
        copied = await copy.aenqueue(ada)
        assert await moved.aresult(30) == [Point(1, 2.0)]
        assert await copied.aresult(30) == ada
