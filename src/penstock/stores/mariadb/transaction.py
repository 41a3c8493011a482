"""One transaction on one session; statements without results are sent with the next one."""

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from penstock.errors import StoreError
from penstock.model.message import Moment
from penstock.model.store_types import Completion, Dedupe, Entry, Firing, Published
from penstock.stores.mariadb import publish
from penstock.stores.mariadb.connection import MariaConnection, StatementOutcome, last_rows
from penstock.stores.mariadb.errors import ERRORS, is_conflict, is_connection_gone, translate_error
from penstock.stores.mariadb.statement import (
    SQL,
    fill_statement,
    locks_of,
    to_json_array,
    to_tuples,
)
from penstock.stores.sql.database import Mode
from penstock.stores.sql.dedup import compute_kept_until
from penstock.stores.sql.ordering_keys import make_lockable
from penstock.stores.sql.publish import LockingTransaction, StoreTransaction
from penstock.stores.sql.transaction import Lockable, Ticket

# Statements whose row count is not used.
UNASKED = frozenset({
    "put_ready", "put_scheduled", "put_dead", "put_history", "dedup_remember", "name_take",
    "keep_result", "unique_free", "take_head", "free_head", "get_in_line", "pruned_up_to",
    "leave_leases_of", "leave_scheduled", "hold_add", "edge_add", "nudge_add", "nudge_awaiting",
    "drop_holds_of", "drop_nudges_of", "drop_holds", "drop_nudges", "edges_settle", "step_save",
    "resume_held", "leave_held", "flag_steps", "record_dead_set", "redrive_dead_set",
    "drop_dead_set", "schedule_move",
})  # fmt: skip
# Taken by a locking SELECT, then deleted.
LEFT_PLACES = {
    "expire_ready": "ready",
    "expire_scheduled": "scheduled",
    "scan_ready": "ready",
    "take_some_ready": "ready",
    "take_some_scheduled": "scheduled",
    "take_some_dead": "dead",
    "take_old_dead": "dead",
}
COMMIT, ROLLBACK = "COMMIT", "ROLLBACK"
ENTER = fill_statement("enter")
NOW = "SELECT @now"
BEGIN_WRITING = ("START TRANSACTION", ENTER)
# Sessions have a short lock timeout already.
BEGIN: dict[Mode, tuple[str, ...]] = {
    "read": ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION READ ONLY"),
    "write": BEGIN_WRITING,
    "briefly": BEGIN_WRITING,
}
# Returns the statements that notify the waiters of queues.
Notices = Callable[[Collection[int]], list[str]]
# Maximum bytes of buffered statements.
MAX_DEFERRED_BYTES = 1_000_000


def find_guard_slots(what: Sequence[Lockable]) -> list[int]:
    """Returns the guard rows for these keys; different keys may share a row."""
    return [
        int.from_bytes(blake2b(repr(each).encode(), digest_size=2).digest(), "big") for each in what
    ]


class RowLockGuard(LockingTransaction):
    """Locks keys through rows of the guard table."""

    __slots__ = ()

    async def lock(self, *what: Lockable) -> None:
        await self.all("lock", slots=sorted(set(find_guard_slots(what))))

    async def try_lock(self, what: Sequence[Lockable]) -> list[bool]:
        slots = find_guard_slots(what)
        free = {slot for (slot,) in await self.all("try_lock", slots=sorted(set(slots)))}
        return [slot in free for slot in slots]

    def encode_ids(self, numbers: Sequence[int]) -> Any:
        return sorted(numbers)


class MariaTransaction(RowLockGuard, StoreTransaction):
    __slots__ = ("later", "length", "notices", "session")

    def __init__(
        self, session: MariaConnection, now: Moment, notices: Notices | None = None
    ) -> None:
        super().__init__(now)
        self.session = session
        self.notices = notices
        self.later: list[str] = []
        self.length = 0

    async def run(self, statement: str, /, **values: Any) -> int:
        text = fill_statement(statement, **values)
        if statement in UNASKED:
            await self.add(text)
            return 1
        return (await self.send(text))[-1].changed

    async def one(self, statement: str, /, **values: Any) -> Any:
        rows = await self.all(statement, **values)
        return rows[0] if rows else None

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        rows = last_rows(await self.send(fill_statement(statement, **values)))
        if rows and statement in LEFT_PLACES:
            await self.add(
                make_leave_statement(LEFT_PLACES[statement], [Ticket(*row) for row in rows])
            )
        return rows

    async def scan(self, statement: str, /) -> list[Any]:
        return last_rows(await self.session.scan(fill_statement(statement)))

    async def add(self, text: str) -> None:
        self.later.append(text)
        self.length += len(text)
        if self.length > MAX_DEFERRED_BYTES:
            await self.send()

    async def send(self, *texts: str) -> list[StatementOutcome]:
        texts = (*self.later, *texts)
        self.later, self.length = [], 0
        return await self.session.send(*texts)

    async def publish_plain(self, entries: Sequence[Entry]) -> list[Published]:
        published: list[Published] = []
        for chunk in publish.split_into_packets(entries):
            texts = publish.make_statements(chunk)
            outcomes = await self.send(*texts)
            published += publish.make_published(outcomes[-len(texts)].first, len(chunk))
        self.woken.update(entry.queue_id for entry in entries)
        return published

    async def publish_keyed(self, entries: Sequence[Entry]) -> list[Published]:
        return await publish.publish_keyed(self, entries)

    async def lock_lines(self, items: Sequence[Completion]) -> list[Any]:
        rows = await self.all("keys_of_leases", locks=locks_of(items))
        lines = {row[:2]: make_lockable(*row[2:]) for row in rows if row[3] is not None}
        free = await self.try_lock(list(lines.values())) if lines else []
        locked = dict(zip(lines, free, strict=True))
        return [(id, fence, locked.get((id, fence), True)) for id, fence, _, _ in rows]

    async def complete_keyed(self, items: Sequence[Completion]) -> list[Any]:
        return await publish.complete_keyed(self, items)

    async def move_schedules(self, firings: Sequence[Firing]) -> list[tuple[int, Moment]]:
        due = {(firing.schedule_id, firing.seen_at): firing.next_at for firing in firings}
        rows = await self.all("schedules_lock", ids=sorted({id for id, _ in due}))
        moved = [(id, seen_at) for id, seen_at in rows if (id, seen_at) in due]
        for id, seen_at in moved:
            await self.run("schedule_move", id=id, seen_at=seen_at, next_at=due[id, seen_at])
        return moved

    async def dedups_seen(self, keys: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        by_queue: dict[int, list[str]] = {}
        for queue_id, key in keys:
            by_queue.setdefault(queue_id, []).append(key)
        return [
            (queue_id, key)
            for queue_id, some in by_queue.items()
            for (key,) in await self.all(
                "dedups_seen", queue_id=queue_id, keys=sorted(some), now=self.now
            )
        ]

    async def remember_dedups(
        self, keys: Sequence[tuple[int, str]], ids: Sequence[int], dedups: Sequence[Dedupe]
    ) -> None:
        for (queue_id, key), id, dedup in zip(keys, ids, dedups, strict=True):
            await self.run(
                "dedup_remember",
                queue_id=queue_id,
                key=key,
                id=id,
                digest=dedup.digest,
                expires_at=compute_kept_until(dedup, self.now),
            )

    async def commit(self) -> None:
        notices = [] if self.notices is None else self.notices(self.woken)
        await self.send(*notices, COMMIT)

    async def save(self) -> None:
        await self.send("SAVEPOINT penstock")

    async def undo(self) -> None:
        await self.send("ROLLBACK TO penstock")


def make_leave_statement(place: str, tickets: Sequence[Ticket]) -> str:
    if place != "ready":
        return fill_statement(
            f"leave_{place}", array=to_json_array(ticket.id for ticket in tickets)
        )
    return make_leave_ready_statement([ticket[:3] for ticket in tickets])


def make_leave_ready_statement(places: Sequence[tuple[int, ...]]) -> str:
    """Deletes by (queue, rank, id). A one-row IN list of tuples would scan the table."""
    (queue, rank, _), *_ = places
    if all(place[:2] == (queue, rank) for place in places):
        return fill_statement(
            "leave_ready", queue=queue, rank=rank, ids=sorted(p[2] for p in places)
        )
    return fill_statement("leave_ready_each", tickets=to_tuples(sorted(places)))


class MariaDriver:
    """Begins transactions and runs statements on MariaDB sessions."""

    errors: tuple[type[BaseException], ...] = ERRORS
    is_gone = staticmethod(is_connection_gone)
    is_conflict = staticmethod(is_conflict)

    def __init__(self, where: str, moment: str, notices: Notices) -> None:
        self.where = where
        self.notices = notices
        # Every packet first reads the time that all its statements use.
        self.clock = f"SELECT {moment} INTO @now"

    async def begin(self, connection: MariaConnection, mode: Mode) -> MariaTransaction:
        ((now,),) = await connection.rows(*BEGIN[mode], self.clock, NOW)
        return MariaTransaction(connection, now, self.notices)

    async def roll_back(self, connection: MariaConnection) -> None:
        await connection.send(ROLLBACK)

    async def fetch(
        self, connection: MariaConnection, statement: str, values: Mapping[str, Any]
    ) -> list[Any]:
        return await connection.rows(self.clock, SQL[statement].fill(values))

    def writes(self, statement: str) -> bool:
        """Always False: writes are packets with a transaction of their own."""
        return False

    def translate(self, error: BaseException, *, sent: bool = False) -> StoreError:
        return translate_error(error, self.where, sent=sent)
