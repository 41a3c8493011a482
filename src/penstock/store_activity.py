"""The part of the Store protocol that live events, activity and traces use."""

from collections.abc import Sequence
from typing import Protocol

from penstock.model.activity import Heading, HeldLease
from penstock.model.message import HistoryRow


class StoreActivity(Protocol):
    """Reads for live events, activity and traces."""

    async def held(self, after: int, limit: int) -> list[HeldLease]:
        """Lists the leases with a fence above `after`, by fence. Only a snapshot.

        Beyond `limit` leases, a store may leave some out.
        """

    async def past(self, before: int, after: int, limit: int) -> list[HistoryRow]:
        """Reads history between two positions, newest first. Rows may still appear there."""

    async def headings(self, ids: Sequence[int]) -> dict[int, Heading]:
        """Returns the headings of the messages that exist."""
