"""The parts of the Store protocol that read history: export, live events, activity, traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.model.activity import Heading, HeldLease
    from penstock.model.copies import CopyCursor, StoreDump
    from penstock.model.heads import DigestBounds, FeedDigest, HeadFeed
    from penstock.model.message import HistoryRow, Moment
    from penstock.model.store_types import Cursor, Exported, Feed, PlaceCount


class StoreActivity(Protocol):
    """Reads for live events, activity and traces."""

    async def held(self, after: int, limit: int) -> list[HeldLease]:
        """Lists the leases with a fence above `after`, by fence. Only a snapshot.

        Beyond `limit` leases, a store may leave some out.
        """

    async def recent(
        self, after: int, limit: int, beyond: Cursor | None = None
    ) -> list[HistoryRow]:
        """Reads recent history, without rows that the feed up to `beyond` has returned.

        Rows may repeat or come late.
        """

    async def past(self, before: int, after: int, limit: int) -> list[HistoryRow]:
        """Reads history between two positions, newest first. Rows may still appear there."""

    async def headings(self, ids: Sequence[int]) -> dict[int, Heading]:
        """Returns the headings of the messages that exist."""

    async def queues_with_keys(self) -> frozenset[int]:
        """Returns the queues with unfinished messages that have an ordering key.

        Redis reads a sample of the keys.
        """


class StoreExport(Protocol):
    """Export feed, live history and message counts."""

    async def feed(self, cursor: Cursor, limit: int, known: Cursor | None = None) -> Feed:
        """Reads the final, gap-free feed. Open transactions of others hold it back.

        Everything up to `known` is already known to be final and is not checked again.
        """

    async def frontier(self) -> int:
        """Returns a message position: a feed that reaches it has all that was written until now."""

    async def heads(self, cursor: Cursor, limit: int) -> HeadFeed:
        """Reads the same feed without bodies, with the message of each row and its earlier rows."""

    async def digest(self, cursor: Cursor, limit: int, bounds: DigestBounds) -> FeedDigest:
        """Reads the same feed for what only counts, with most of its rows in groups."""

    async def census(self) -> list[PlaceCount]:
        """Counts all messages in one snapshot. On Redis it is exact only while nothing moves."""

    async def depths(self, ended: int) -> dict[tuple[int, str], int]:
        """Counts messages by queue id and place. Of finished ones, only the last `ended` count."""

    async def waiting_since(self) -> dict[int, Moment]:
        """Returns by queue id when the next message to claim became ready."""

    async def save_cursor(self, name: str, cursor: Cursor) -> None: ...

    async def cursors(self) -> dict[str, Exported]: ...

    async def dump(self, cursor: CopyCursor, limit: int) -> StoreDump:
        """Reads dedup keys, then messages with their tickets, history and results."""

    async def restore(self, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
        """Writes a page under the same message ids, and the ids given for its queues.

        Skips messages that are stored already, and returns how many were not. Claimed messages
        must have been given another place.
        """
