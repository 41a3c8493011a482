"""The part of the store protocol that applies a topology."""

from typing import Protocol

from penstock.model.topology import TopologyChange


class StoreTopology(Protocol):
    async def apply(self, change: TopologyChange) -> None:
        """Applies all of the change or nothing.

        Raises TopologyChanged if the directory or a document was changed meanwhile, and
        InvalidState if a queue to delete holds unfinished messages.
        """
