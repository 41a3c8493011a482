"""The transaction interface of SQL engines: named statements, the store's time, locks."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from penstock.model.message import Flag, Moment, State, Verb

T = TypeVar("T")
Lockable: TypeAlias = tuple[str, int, str]


class Ticket(NamedTuple):
    """The mutable part of a message, as stored in ready and scheduled."""

    queue_id: int
    rank: int
    id: int
    type: str
    attempts: int
    deliveries: int
    expires_at: Moment
    flags: int


class DeliveryRow(NamedTuple):
    """The consumer, fence and claim time of a delivery; all None without one."""

    consumer: str | None = None
    fence: int | None = None
    claimed_at: Moment | None = None


NO_DELIVERY = DeliveryRow()


class SqlTransaction(ABC):
    """Runs statements by name with values by name. SQLite's never suspends."""

    __slots__ = ("now", "woken")

    # True if the caller commits, perhaps late: it never waits, and holds few locks.
    foreign = False

    def __init__(self, now: Moment) -> None:
        self.now = now
        self.woken: set[int] = set()

    @abstractmethod
    async def run(self, statement: str, /, **values: Any) -> int:
        """Returns the number of rows changed."""

    @abstractmethod
    async def one(self, statement: str, /, **values: Any) -> Any:
        """Returns the only row, or None."""

    @abstractmethod
    async def all(self, statement: str, /, **values: Any) -> list[Any]: ...

    async def scan(self, statement: str, /) -> list[Any]:
        """Like `all`, for a statement over whole tables, which may take minutes."""
        return await self.all(statement)

    @abstractmethod
    async def lock(self, *what: Lockable) -> None:
        """Locks these against other writers until the transaction ends."""

    async def run_many(self, statement: str, rows: Sequence[dict[str, Any]]) -> None:
        """Runs a statement for each row."""
        for row in rows:
            await self.run(statement, **row)

    async def add_edges(self, rows: Sequence[dict[str, int]]) -> None:
        await self.run_many("edge_add", rows)

    async def try_hold(self, ids: Sequence[int]) -> list[int]:
        """Locks held messages against other looks; returns those that were locked."""
        return list(ids)

    def encode_ids(self, numbers: Sequence[int]) -> Any:
        """Encodes numbers as one value, as the engine's statements expect."""
        return list(numbers)

    async def next_number(self, name: str) -> int:
        number: int = (await self.one("next_number", name=name))[0]
        return number

    async def put_ready(self, ticket: Ticket) -> None:
        await self.run("put_ready", **ticket._asdict())
        self.woken.add(ticket.queue_id)

    async def put_scheduled(
        self, ticket: Ticket, due_at: Moment, key: str | None = None, position: int | None = None
    ) -> None:
        await self.run(
            "put_scheduled", due_at=due_at, key=key, position=position, **ticket._asdict()
        )

    async def put_dead(
        self, ticket: Ticket, dead_at: Moment, reason: str | None, error: str | None
    ) -> None:
        await self.run(
            "put_dead",
            queue_id=ticket.queue_id,
            rank=ticket.rank,
            id=ticket.id,
            type=ticket.type,
            attempts=ticket.attempts,
            deliveries=ticket.deliveries,
            flags=ticket.flags & ~Flag.UNIQUE,
            dead_at=dead_at,
            reason=reason,
            error=error,
        )

    async def record(
        self,
        ticket: Ticket,
        verb: Verb,
        state: State,
        reason: str | None = None,
        *,
        error: str | None = None,
        delivery: DeliveryRow = NO_DELIVERY,
        due_at: Moment | None = None,
        traceback: str | None = None,
    ) -> None:
        """Writes one row of history."""
        await self.run(
            "put_history",
            id=ticket.id,
            queue_id=ticket.queue_id,
            verb=verb.value,
            state=state.value,
            reason=reason,
            error=error,
            attempts=ticket.attempts,
            deliveries=ticket.deliveries,
            consumer=delivery.consumer,
            fence=delivery.fence,
            claimed_at=delivery.claimed_at,
            at=self.now,
            due_at=due_at,
            final=state.final,
            traceback=traceback,
        )


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise RuntimeError("an operation on a synchronous connection suspended")
