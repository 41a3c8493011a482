"""The parts of the broker interface that edit messages, and act on many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.model.bulk import BulkAction, BulkVerb
    from penstock.model.store_types import Published


class EditInterface(Protocol):
    """Operations that replace or reprioritise a message that waits or is dead."""

    async def edit(
        self, reference: int | str, body: bytes, *, scope: str = "default"
    ) -> Published: ...

    async def move(
        self,
        reference: int | str,
        queue: str,
        *,
        to_scope: str | None = None,
        scope: str = "default",
    ) -> Published: ...

    async def reprioritise(
        self, reference: int | str, priority: int, *, scope: str = "default"
    ) -> None: ...


class BulkInterface(Protocol):
    """Bulk actions."""

    async def start(
        self,
        verb: BulkVerb | str,
        *,
        filter: str | None = None,
        ids: Sequence[int] | None = None,
        queue: str | None = None,
        to_scope: str | None = None,
        priority: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        name: str | None = None,
        scope: str = "default",
    ) -> BulkAction:
        """Starts an operation on all messages that match a filter, or that have these ids."""

    async def get(self, id: int) -> BulkAction: ...

    async def list_actions(self, *, active: bool = False, limit: int = 50) -> list[BulkAction]: ...

    async def pause(self, id: int) -> BulkAction: ...

    async def resume(self, id: int) -> BulkAction: ...

    async def abort(self, id: int) -> BulkAction: ...
