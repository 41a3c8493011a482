"""The statements of PostgreSQL, and one transaction on one asyncpg connection."""

import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from penstock.errors import StoreError
from penstock.model.message import Moment
from penstock.model.store_types import (
    Completion,
    Dedupe,
    Entry,
    Extension,
    Firing,
    Lock,
    Published,
)
from penstock.stores.postgres import publish
from penstock.stores.postgres.connection import CALL_TIMEOUT_S, SCAN_TIMEOUT_S
from penstock.stores.postgres.errors import (
    CONFLICT_ERRORS,
    ERRORS,
    is_connection_gone,
    translate_error,
)
from penstock.stores.sql.database import Mode
from penstock.stores.sql.dedup import compute_kept_until
from penstock.stores.sql.publish import LockingTransaction, StoreTransaction
from penstock.stores.sql.transaction import Lockable
from penstock.stores.statements import load

BEGIN: dict[Mode, str] = {
    "read": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    # Transactions that read and then write may wait for locks, in milliseconds.
    "write": "BEGIN; SET LOCAL lock_timeout = 2000",
    # A shorter wait for transactions that others queue behind.
    "briefly": "BEGIN; SET LOCAL lock_timeout = 250",
}
# Excludes the second colon of a cast.
NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")


# Excludes FOR UPDATE.
WRITES = re.compile(r"\bINSERT INTO\b|\bDELETE FROM\b|(?<!FOR )\bUPDATE\b|\bCREATE\b")


class PostgresStatement(NamedTuple):
    text: str
    names: tuple[str, ...]

    @property
    def writes(self) -> bool:
        return WRITES.search(self.text) is not None

    def values(self, given: dict[str, Any]) -> list[Any]:
        return [given[name] for name in self.names]


def parse_statement(text: str) -> PostgresStatement:
    names = tuple(dict.fromkeys(NAMED.findall(text)))
    places = {name: f"${place}" for place, name in enumerate(names, 1)}
    return PostgresStatement(NAMED.sub(lambda found: places[found[1]], text), names)


def number_parameters(text: str) -> str:
    """Wraps moment() in a subquery, which runs once per statement instead of per row."""
    return text.replace("penstock.moment()", "(SELECT penstock.moment())")


TEXTS = {
    name: number_parameters(text)
    for name, text in load("penstock.stores.postgres", "penstock.").items()
}
# The claim statement with each way to pick tickets.
CLAIMS = {
    pick: parse_statement(TEXTS["claim"].replace("/*pick*/", TEXTS[pick]))
    for pick in ("pick_one", "pick_after", "pick_line", "pick_types")
}
SQL = {name: parse_statement(text) for name, text in TEXTS.items()} | CLAIMS


class Locks(LockingTransaction):
    """Locks keys with advisory locks."""

    __slots__ = ()

    async def lock(self, *what: Lockable) -> None:
        await self.all("lock", all=[make_lock_name(each) for each in what])

    async def try_lock(self, what: Sequence[Lockable]) -> list[bool]:
        rows = await self.all("try_lock", all=[make_lock_name(each) for each in what])
        return [free for (free,) in rows]

    async def publish_plain(self, entries: Sequence[Entry]) -> list[Published]:
        name, values = publish.make_call(entries)
        self.woken.update(entry.queue_id for entry in entries)
        return publish.make_published(await self.all(name, **values))


class PostgresTransaction(Locks, StoreTransaction):
    __slots__ = ("connection",)

    def __init__(self, connection: asyncpg.Connection, now: Moment) -> None:
        super().__init__(now)
        self.connection = connection

    async def run(self, statement: str, /, **values: Any) -> int:
        text, names = SQL[statement]
        status = await self.connection.execute(
            text, *[values[name] for name in names], timeout=CALL_TIMEOUT_S
        )
        return int(status.rpartition(" ")[2])

    async def one(self, statement: str, /, **values: Any) -> Any:
        text, names = SQL[statement]
        return await self.connection.fetchrow(
            text, *[values[name] for name in names], timeout=CALL_TIMEOUT_S
        )

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        text, names = SQL[statement]
        return await self.connection.fetch(
            text, *[values[name] for name in names], timeout=CALL_TIMEOUT_S
        )

    async def scan(self, statement: str, /) -> list[Any]:
        return await self.connection.fetch(SQL[statement].text, timeout=SCAN_TIMEOUT_S)

    async def run_many(self, statement: str, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            text, names = SQL[statement]
            values = [[row[name] for name in names] for row in rows]
            await self.connection.executemany(text, values, timeout=CALL_TIMEOUT_S)

    async def add_edges(self, rows: Sequence[dict[str, int]]) -> None:
        if rows:
            names = ("held_id", "number", "awaited_id")
            columns = {f"{name}s": [row[name] for row in rows] for name in names}
            await self.run("edges_add", **columns)

    async def publish_keyed(self, entries: Sequence[Entry]) -> list[Published]:
        awaited, entries = publish.split_awaited(entries)
        outcomes: list[Published] = []
        if awaited is not None:
            values = publish.make_heading(awaited.heading) | {"bodies": awaited.bodies}
            outcomes = publish.make_published(await self.all("publish_awaited", **values))
            self.woken.add(awaited.heading.queue_id)
        if not entries:
            return outcomes
        name, values = publish.make_keyed_call(entries)
        rows = await self.all(name, **values)
        self.woken.update(queue_id for _, queue_id in rows if queue_id is not None)
        return outcomes + publish.make_published(rows)

    async def lock_lines(self, items: Sequence[Completion]) -> list[Any]:
        return await self.all("lock_lines", **locks_of(items))

    async def complete_keyed(self, items: Sequence[Completion]) -> list[Any]:
        results = [item.result for item in items]
        rows = await self.all("complete_keyed", **locks_of(items), results=results)
        self.woken.update(queue_id for _, _, queue_id in rows if queue_id is not None)
        return [(id, fence) for id, fence, _ in rows]

    async def move_schedules(self, firings: Sequence[Firing]) -> list[tuple[int, Moment]]:
        rows = await self.all(
            "schedules_move",
            ids=[firing.schedule_id for firing in firings],
            seen_ats=[firing.seen_at for firing in firings],
            next_ats=[firing.next_at for firing in firings],
        )
        return [(id, seen_at) for id, seen_at in rows]

    async def dedups_seen(self, keys: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        values = {"queue_ids": [id for id, _ in keys], "keys": [key for _, key in keys]}
        rows = await self.all("dedups_seen", **values, now=self.now)
        return [(queue_id, key) for queue_id, key in rows]

    async def remember_dedups(
        self, keys: Sequence[tuple[int, str]], ids: Sequence[int], dedups: Sequence[Dedupe]
    ) -> None:
        await self.run(
            "dedups_remember",
            queue_ids=[queue_id for queue_id, _ in keys],
            keys=[key for _, key in keys],
            ids=ids,
            digests=[dedup.digest for dedup in dedups],
            expires_ats=[compute_kept_until(dedup, self.now) for dedup in dedups],
        )

    async def commit(self) -> None:
        await self.connection.execute("COMMIT", timeout=CALL_TIMEOUT_S)

    async def save(self) -> None:
        await self.connection.execute("SAVEPOINT atomic")

    async def undo(self) -> None:
        await self.connection.execute("ROLLBACK TO atomic")


def make_lock_name(what: Lockable) -> str:
    kind, queue_id, name = what
    return f"penstock {kind} {queue_id} {name}"


def locks_of(items: Sequence[Completion | Extension | Lock]) -> dict[str, list[int]]:
    return {"ids": [item.id for item in items], "fences": [item.fence for item in items]}


class PostgresDriver:
    """Begins transactions and runs statements on asyncpg connections."""

    errors: tuple[type[BaseException], ...] = ERRORS
    is_gone = staticmethod(is_connection_gone)

    def __init__(self, where: str) -> None:
        self.where = where

    async def begin(self, connection: asyncpg.Connection, mode: Mode) -> PostgresTransaction:
        await connection.execute(BEGIN[mode], timeout=CALL_TIMEOUT_S)
        now = await connection.fetchval(SQL["moment"].text, timeout=CALL_TIMEOUT_S)
        return PostgresTransaction(connection, now)

    async def roll_back(self, connection: asyncpg.Connection) -> None:
        if not connection.is_closed():
            await connection.execute("ROLLBACK", timeout=CALL_TIMEOUT_S)

    def fetch(
        self, connection: asyncpg.Connection, statement: str, values: Mapping[str, Any]
    ) -> Awaitable[list[Any]]:
        text, names = SQL[statement]
        return connection.fetch(text, *[values[name] for name in names], timeout=CALL_TIMEOUT_S)

    def writes(self, statement: str) -> bool:
        return SQL[statement].writes

    def is_conflict(self, error: BaseException) -> bool:
        return isinstance(error, CONFLICT_ERRORS)

    def translate(self, error: BaseException, *, sent: bool = False) -> StoreError:
        return translate_error(error, self.where, sent=sent)
