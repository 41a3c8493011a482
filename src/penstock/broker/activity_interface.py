"""The interface of activity, traces and the completion of filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.model.message import NEVER

if TYPE_CHECKING:
    from penstock.model.activity import ActivityPage, Trace
    from penstock.model.message import Moment
    from penstock.rules.filter_completion import FilterSuggestion


class ActivityInterface(Protocol):
    """What happened to messages and queues, and by whom."""

    async def find(
        self,
        filter: str = "",
        *,
        kinds: Sequence[str] = (),
        since: Moment = 0,
        until: Moment = NEVER,
        cursor: str | None = None,
        limit: int = 50,
    ) -> ActivityPage: ...

    async def trace(self, correlation_id: str) -> Trace: ...


class FiltersInterface(Protocol):
    """Help with filters."""

    async def complete(self, text: str, position: int | None = None) -> FilterSuggestion: ...
