"""A filter over messages: its syntax tree, and the fields that it tests."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from penstock.model.message import Moment, State


class Op(StrEnum):
    IS = ":"
    ABOVE = ">"
    AT_LEAST = ">="
    BELOW = "<"
    AT_MOST = "<="


class Pattern(Struct, frozen=True):
    """Literal parts with any text between them. `mail*` has the parts ("mail", "")."""

    parts: tuple[str, ...]

    @property
    def literal(self) -> str | None:
        """The text of a pattern without a star."""
        return self.parts[0] if len(self.parts) == 1 else None


class Span(Struct, frozen=True):
    """A day, or one microsecond: from `since` until before `until`."""

    since: Moment
    until: Moment


Value: TypeAlias = Pattern | Span | float


class Term(Struct, frozen=True):
    """Compares a field with values; one of them must fit. `path` is the rest of `body.a.b`."""

    field: str
    op: Op
    values: tuple[Value, ...]
    path: tuple[str, ...] = ()


class Not(Struct, frozen=True):
    node: "Node"


class All(Struct, frozen=True):
    nodes: tuple["Node", ...]


class Any(Struct, frozen=True):
    nodes: tuple["Node", ...]


Node: TypeAlias = Term | Not | All | Any


class Candidate(Struct, frozen=True, kw_only=True):
    """The values of one message that a filter tests. None never matches a term."""

    state: State | None = None
    queue: str | None = None
    scope: str | None = None
    type: str | None = None
    id: int | None = None
    name: str | None = None
    key: str | None = None
    correlation: str | None = None
    causation: str | None = None
    parent: int | None = None
    consumer: str | None = None
    reason: str | None = None
    error: str | None = None
    priority: int | None = None
    attempts: int | None = None
    deliveries: int | None = None
    created: Moment | None = None
    ended: Moment | None = None
    # When a dead or failed message failed for the last time.
    failed: Moment | None = None
    due: Moment | None = None
    expires: Moment | None = None
    # Seconds from when it was ready until it was last claimed.
    wait: float | None = None
    # The routing rules that it passed, as `name@version`.
    rules: tuple[str, ...] = ()
    labels: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    body: bytes | None = None
    size: int | None = None
