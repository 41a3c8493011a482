"""The admin interface: scopes, queues, schedules and single messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock.broker.search import SearchResult
    from penstock.errors import PenstockError
    from penstock.model.explain import Cause
    from penstock.model.message import Moment, Record, State
    from penstock.model.queue import Queue, QueueState, Schedule, Scope
    from penstock.model.store_types import Answer, Pruned, Published
    from penstock.model.waiting import CancelledTree


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


class AdminInterface(EditInterface, Protocol):
    """Administration of scopes, queues, schedules and messages."""

    async def create_scope(self, name: str) -> Scope: ...

    async def pause_scope(self, name: str, *, paused: bool = True) -> None: ...

    async def create_queue(
        self, /, name: str, *, preset_name: str = "default", scope: str = "default", **settings: Any
    ) -> Queue: ...

    async def ensure_queue(
        self, /, name: str, *, preset_name: str = "default", scope: str = "default", **settings: Any
    ) -> Queue: ...

    async def queue(self, name: str, *, scope: str = "default") -> Queue: ...

    async def queues(self, *, scope: str = "default") -> list[Queue]: ...

    async def set_queue(
        self, /, name: str, *, scope: str = "default", **settings: Any
    ) -> Queue: ...

    async def set_state(self, name: str, state: QueueState, *, scope: str = "default") -> Queue: ...

    async def rename_queue(self, name: str, new_name: str, *, scope: str = "default") -> Queue: ...

    async def delete_queue(
        self, name: str, *, force: bool = False, scope: str = "default"
    ) -> None: ...

    async def schedule(self, schedule: Schedule, *, scope: str = "default") -> Schedule: ...

    async def schedules(self, *, scope: str = "default") -> list[Schedule]: ...

    async def pause_schedule(
        self, queue: str, name: str, *, scope: str = "default"
    ) -> Schedule: ...

    async def resume_schedule(
        self, queue: str, name: str, *, scope: str = "default"
    ) -> Schedule: ...

    async def unschedule(self, queue: str, name: str, *, scope: str = "default") -> None: ...

    async def get(self, reference: int | str, *, scope: str = "default") -> Record: ...

    async def result(self, reference: int | str, *, scope: str = "default") -> bytes | None: ...

    async def callbacks(self, reference: int | str, *, scope: str = "default") -> list[Record]: ...

    async def explain(self, reference: int | str, *, scope: str = "default") -> list[Cause]: ...

    async def find(
        self,
        queue: str | None = None,
        *,
        state: State | None = None,
        type: str | None = None,
        correlation_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
        scope: str = "default",
    ) -> list[Record]: ...

    async def search(
        self, filter: str, *, cursor: str | None = None, limit: int = 50, scope: str = "default"
    ) -> SearchResult: ...

    async def cancel(
        self, reference: int | str, *, force: bool = False, scope: str = "default"
    ) -> Answer: ...

    async def cancel_tree(
        self, reference: int | str, *, force: bool = False, scope: str = "default"
    ) -> CancelledTree: ...

    async def redrive(
        self, reference: int | str, *, body: bytes | None = None, scope: str = "default"
    ) -> Published: ...

    async def redrive_many(self, ids: Sequence[int]) -> list[Answer | PenstockError]: ...

    async def purge(
        self, name: str, *places: str, limit: int = 1_000, scope: str = "default"
    ) -> int: ...

    async def prune(
        self, name: str, *, before: Moment | None = None, limit: int = 1_000, scope: str = "default"
    ) -> Pruned: ...

    async def purge_dead(self, reference: int | str, *, scope: str = "default") -> Answer: ...
