"""The interface of an SQL engine: its database, fast statements and hot verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from penstock.model.store_types import (
    Completion,
    Extension,
)

if TYPE_CHECKING:
    from penstock.model.copies import StoreDump
    from penstock.model.heads import DigestBounds, FeedDigest, HeadFeed
    from penstock.model.message import HistoryRow, Moment
    from penstock.model.store_types import (
        Claim,
        Claimed,
        Cursor,
        Entry,
        Feed,
        Firing,
        Lock,
        Move,
        Pruned,
        Published,
        Retention,
    )
    from penstock.model.waiting import SignalAnswer, SignalDraft, StepRecord, StepSave
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

    async def heads(self, cursor: Cursor, limit: int) -> HeadFeed: ...

    async def digest(self, cursor: Cursor, limit: int, bounds: DigestBounds) -> FeedDigest: ...

    async def recent(
        self, after: int, limit: int, beyond: Cursor | None = None
    ) -> list[HistoryRow]: ...

    async def past(self, before: int, after: int, limit: int) -> list[HistoryRow]: ...

    async def restore(self, page: StoreDump, queue_ids: Mapping[int, int]) -> int: ...

    async def examine(self) -> list[Check]: ...

    async def backup(self, path: str) -> None: ...


class ServerDialect(Dialect, Protocol):
    """Statements of a server that change a set of rows and skip those that are locked."""

    async def enqueue_plain(self, entries: Sequence[Entry]) -> list[Published]:
        """Publishes plain entries in one step, without reading stored rows."""

    async def enqueue_fanouts(self, entries: Sequence[Entry]) -> list[Published] | None:
        """Publishes broadcasts in one statement. None if the engine has none for these entries."""

    async def save_step(self, item: StepSave) -> StepRecord | None:
        """Stores a step of a run in one statement. None if that is not possible."""

    async def signal_held(self, draft: SignalDraft) -> SignalAnswer | None:
        """Stores a signal of a held message in one statement, and resumes the message if it waits
        for nothing else. None if that is not possible."""

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
