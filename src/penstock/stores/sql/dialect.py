"""What differs between the SQL engines: their databases, fast statements and hot verbs."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

from penstock.model.copies import StoreDump
from penstock.model.message import HistoryRow, Moment, Verb
from penstock.model.store_types import (
    Answer,
    Claim,
    Claimed,
    Completion,
    Cursor,
    Entry,
    Extension,
    Feed,
    Firing,
    Lease,
    Lock,
    Move,
    Promoted,
    Pruned,
    Published,
    Retention,
    Sweep,
)
from penstock.store import Capabilities, Check
from penstock.stores.sql.caller_transaction import Inside
from penstock.stores.sql.documents import Work

P = ParamSpec("P")
T = TypeVar("T")
Locked = TypeVar("Locked", Completion, Extension)


class Database(Protocol):
    """Runs work in transactions."""

    capabilities: Capabilities

    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs one write transaction, durable when it returns."""

    async def look(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a short read."""

    async def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a read that may be long, on one snapshot."""

    def refuse_closed(self) -> None: ...

    async def close(self) -> None: ...


class Dialect(Protocol):
    """Verbs that each engine has its own statements for."""

    async def claim(self, claim: Claim) -> Claimed: ...

    async def claim_dead(self, claim: Claim) -> Claimed: ...

    async def now(self) -> Moment: ...

    async def expire(self, limit: int) -> int: ...

    async def fire(self, firings: Sequence[Firing]) -> list[bool]: ...

    async def prune(self, retention: Retention) -> Pruned: ...

    async def index_types(self) -> None:
        """Builds the index for claims by type."""

    async def feed(self, cursor: Cursor, limit: int, known: Cursor | None = None) -> Feed: ...

    async def recent(self, after: int, limit: int) -> list[HistoryRow]: ...

    async def restore(self, page: StoreDump, queue_ids: Mapping[int, int]) -> int: ...

    async def examine(self) -> list[Check]: ...

    async def backup(self, path: str) -> None: ...


class ServerDialect(Dialect, Protocol):
    """Statements of a server that change a set of rows and skip those that are locked."""

    async def enqueue_plain(self, entries: Sequence[Entry]) -> list[Published]:
        """Publishes plain entries in one step, without reading stored rows."""

    async def complete_set(self, items: Sequence[Completion]) -> list[Any]:
        """Returns the locks that were completed; raises StoreBusy if a row is locked."""

    async def extend_set(self, items: Sequence[Extension]) -> list[Any]: ...

    async def settle_set(self, moves: Sequence[Move]) -> list[Any]:
        """Returns a row for each move made, beginning with its id."""

    async def fetch_leases(self, locks: Sequence[Lock]) -> list[Any]: ...

    async def free_among(self, items: Sequence[Locked]) -> list[Locked]:
        """Returns the locks whose rows no other transaction has locked."""

    async def promote_set(self, limit: int) -> list[int]:
        """Promotes due tickets that need not wait for their key; returns their queues."""

    def inside(self, connection: object) -> Inside:
        """Enters the caller's transaction, or begins one if there is none."""

    async def ainside(self, connection: object) -> Inside: ...


class HotVerbs(Protocol):
    """Verbs that depend on how the engine isolates writers: one writer, or many at once."""

    async def enqueue(
        self, entries: Sequence[Entry], *, atomic: bool = False
    ) -> list[Published]: ...

    def enqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]: ...

    async def aenqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]: ...

    def complete_on(self, connection: object, item: Completion) -> None: ...

    async def acomplete_on(self, connection: object, item: Completion) -> None: ...

    def in_transaction(self, connection: object) -> bool: ...

    async def complete(self, items: Sequence[Completion]) -> list[Answer]: ...

    async def extend(self, items: Sequence[Extension]) -> list[Answer]: ...

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]: ...

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]: ...

    async def settle(self, moves: Sequence[Move]) -> list[Answer]: ...

    async def any_ready(self, queue_ids: Collection[int]) -> bool: ...

    async def has_ready(self, queue_id: int, types: Sequence[str] = ()) -> bool: ...

    async def expired_leases(self, limit: int) -> Sweep: ...

    async def promote(self, limit: int) -> Promoted: ...

    async def directory_version(self) -> int: ...

    async def cancel(self, ids: Sequence[int], *, force: bool = False) -> list[Answer]: ...

    async def redrive(self, ids: Sequence[int]) -> list[Answer]: ...

    async def replace(self, id: int, entry: Entry) -> Published: ...

    async def purge_dead(self, ids: Sequence[int]) -> list[Answer]: ...
