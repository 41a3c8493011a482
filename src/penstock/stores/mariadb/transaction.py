"""One transaction on one session. What nobody waits for travels with the next statement."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from penstock.message import Moment
from penstock.stores.mariadb import keyed, publish
from penstock.stores.mariadb.session import Outcome, Session, rows_of
from penstock.stores.mariadb.statement import array, locks_of, text_of, tuples
from penstock.stores.sql.locking import LockingTransaction, StoreTransaction
from penstock.stores.sql.transaction import Lockable, Ticket
from penstock.ticket import Completion, Entry, Published

# Statements whose count nobody asks for.
UNASKED = frozenset({
    "put_ready", "put_scheduled", "put_dead", "put_history", "dedup_remember", "name_take",
    "keep_result", "unique_free", "take_head", "free_head", "get_in_line", "pruned_up_to",
    "leave_leases_of", "leave_scheduled",
})  # fmt: skip
# What is taken by a look, which locks it, leaves its place right after.
PLACES = {
    "expire_ready": "ready",
    "expire_scheduled": "scheduled",
    "scan_ready": "ready",
    "take_some_ready": "ready",
    "take_some_scheduled": "scheduled",
    "take_some_dead": "dead",
}
# Bytes that wait for company at most.
ENOUGH = 1_000_000


def slots_of(what: Sequence[Lockable]) -> list[int]:
    """The rows of the guard that stand for these; different ones may share a row."""
    return [
        int.from_bytes(blake2b(repr(each).encode(), digest_size=2).digest(), "big") for each in what
    ]


class Guarded(LockingTransaction):
    """Locks are rows of the guard, on whatever connection."""

    __slots__ = ()

    async def lock(self, *what: Lockable) -> None:
        await self.all("lock", slots=sorted(set(slots_of(what))))

    async def try_lock(self, what: Sequence[Lockable]) -> list[bool]:
        slots = slots_of(what)
        free = {slot for (slot,) in await self.all("try_lock", slots=sorted(set(slots)))}
        return [slot in free for slot in slots]

    def listed(self, numbers: Sequence[int]) -> Any:
        return sorted(numbers)


class Transaction(Guarded, StoreTransaction):
    __slots__ = ("later", "length", "session")

    def __init__(self, session: Session, now: Moment) -> None:
        super().__init__(now)
        self.session = session
        self.later: list[str] = []
        self.length = 0

    async def run(self, statement: str, /, **values: Any) -> int:
        text = text_of(statement, **values)
        if statement in UNASKED:
            await self.add(text)
            return 1
        return (await self.send(text))[-1].changed

    async def one(self, statement: str, /, **values: Any) -> Any:
        rows = await self.all(statement, **values)
        return rows[0] if rows else None

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        rows = rows_of(await self.send(text_of(statement, **values)))
        if rows and statement in PLACES:
            await self.add(leaving(PLACES[statement], [Ticket(*row) for row in rows]))
        return rows

    async def add(self, text: str) -> None:
        self.later.append(text)
        self.length += len(text)
        if self.length > ENOUGH:
            await self.send()

    async def send(self, *texts: str) -> list[Outcome]:
        texts = (*self.later, *texts)
        self.later, self.length = [], 0
        return await self.session.send(*texts)

    async def publish_plain(self, entries: Sequence[Entry]) -> list[Published]:
        texts = publish.writing(entries)
        outcomes = await self.send(*texts)
        self.woken.update(entry.queue_id for entry in entries)
        return publish.published(outcomes[-len(texts)].first, len(entries))

    async def publish_keyed(self, entries: Sequence[Entry]) -> list[Published]:
        return await keyed.publish(self, entries)

    async def keys_of_leases(self, items: Sequence[Completion]) -> list[Any]:
        return await self.all("keys_of_leases", locks=locks_of(items))

    async def complete_keyed(self, items: Sequence[Completion]) -> list[Any]:
        return await keyed.complete(self, items)

    async def save(self) -> None:
        await self.send("SAVEPOINT penstock")

    async def undo(self) -> None:
        await self.send("ROLLBACK TO penstock")


def leaving(place: str, tickets: Sequence[Ticket]) -> str:
    if place != "ready":
        return text_of(f"leave_{place}", array=array(ticket.id for ticket in tickets))
    return leaving_ready([ticket[:3] for ticket in tickets])


def leaving_ready(places: Sequence[tuple[int, ...]]) -> str:
    """Of queue, rank and id. A list of one row would be looked for in the whole table."""
    (queue, rank, _), *_ = places
    if all(place[:2] == (queue, rank) for place in places):
        return text_of("leave_ready", queue=queue, rank=rank, ids=sorted(p[2] for p in places))
    return text_of("leave_ready_each", tickets=tuples(sorted(places)))
