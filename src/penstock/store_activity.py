"""The part of the Store protocol that live events, activity and traces use."""

from collections.abc import Sequence
from typing import Protocol

from penstock.model.activity import Heading, HeldLease
from penstock.model.message import HistoryRow
from penstock.model.store_types import Cursor


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
