"""One transaction on one connection: named statements, its moment, and whom to wake after it."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.message import Flag, Moment, State, Verb
from penstock.stores.statements import load

SQL = load("penstock.stores.sqlite", "statements.sql")
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]


class Ticket(NamedTuple):
    """The small moving part of a message, as it stands in ready and scheduled."""

    queue_id: int
    rank: int
    id: int
    type: str
    attempts: int
    deliveries: int
    expires_at: Moment
    flags: int


class Delivery(NamedTuple):
    """Who held a ticket, under which fence, since when; all None if nobody did."""

    consumer: str | None = None
    fence: int | None = None
    claimed_at: Moment | None = None


NOBODY = Delivery()


class Transaction:
    __slots__ = ("db", "now", "woken")

    def __init__(self, db: sqlite3.Connection, now: Moment) -> None:
        self.db = db
        self.now = now
        self.woken: set[int] = set()

    def run(self, name: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        return self.db.execute(SQL[name], parameters)

    def run_many(self, name: str, parameters: Iterable[Parameters]) -> None:
        self.db.executemany(SQL[name], parameters)

    def one(self, name: str, parameters: Parameters = ()) -> Any:
        """The only row, or None. Reads it to the end, so that RETURNING has its effect."""
        rows = self.db.execute(SQL[name], parameters).fetchall()
        return rows[0] if rows else None

    def all(self, name: str, parameters: Parameters = ()) -> list[Any]:
        return self.db.execute(SQL[name], parameters).fetchall()

    def next_number(self, name: str) -> int:
        number: int = self.one("next_number", (name,))[0]
        return number

    def put_ready(self, ticket: Ticket) -> None:
        self.run("put_ready", ticket)
        self.woken.add(ticket.queue_id)

    def put_scheduled(
        self, ticket: Ticket, due_at: Moment, key: str | None = None, position: int | None = None
    ) -> None:
        self.run("put_scheduled", (*ticket, due_at, key, position))

    def put_dead(
        self, ticket: Ticket, dead_at: Moment, reason: str | None, error: str | None
    ) -> None:
        flags = ticket.flags & ~Flag.UNIQUE
        self.run("put_dead", (*ticket[:6], flags, dead_at, reason, error))

    def record(
        self,
        ticket: Ticket,
        verb: Verb,
        state: State,
        reason: str | None = None,
        *,
        error: str | None = None,
        delivery: Delivery = NOBODY,
        due_at: Moment | None = None,
    ) -> None:
        """One row of history."""
        row = (
            ticket.id, ticket.queue_id, verb.value, state.value, reason, error, ticket.attempts,
            ticket.deliveries, *delivery, self.now, due_at, state.final,
        )  # fmt: skip
        self.run("put_history", row)
