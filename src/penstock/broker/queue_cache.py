"""Caches queues by name and id, and the policy that governs them, for at most a second."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.documents import decode_document, list_documents
from penstock.errors import NotFound
from penstock.model.message import Draft
from penstock.model.queue import SCOPE, Queue, QueueState, ScopeProfile
from penstock.model.routing import RULE
from penstock.model.schemas import BINDING
from penstock.model.store_types import Lock
from penstock.rules.validation import clip
from penstock.store import Store

if TYPE_CHECKING:
    from penstock.broker.policy import Policy, PolicyLoader

CACHE_TTL_S = 1.0
# Queues compared with a name that does not exist, which takes a few milliseconds.
MAX_COMPARED_QUEUES = 1_000
# Beyond this number, the oldest are dropped.
MAX_LOST_LOCKS = 1_000


class LostLocks:
    """Settles that were refused because the lock was lost, until an agent records them."""

    def __init__(self) -> None:
        self.noted: deque[Lock] = deque(maxlen=MAX_LOST_LOCKS)

    def note(self, id: int, fence: int) -> None:
        self.noted.append(Lock(id, fence))

    def take(self) -> list[Lock]:
        taken = list(self.noted)
        self.noted.clear()
        return taken


class QueueCache:
    """With `suggests`, the error for an unknown queue names a similar one. Servers leave it off:
    their callers may not know every queue."""

    def __init__(self, store: Store, *, suggests: bool = False) -> None:
        self.store = store
        self.suggests = suggests
        self.version = -1
        self.fresh_until = 0.0
        self.by_name: dict[tuple[str, str, str], Queue] = {}
        self.by_id: dict[int, Queue] = {}
        # True if the store has rules, bound schemas or broadcast queues.
        self.governed = False
        # Settles refused in this process, which an agent records as anomalies.
        self.lost_locks = LostLocks()
        self.changes = 0
        self.reading: asyncio.Task[None] | None = None
        self.next_read: asyncio.Task[None] | None = None

    # The policy is imported when a queue is governed, so that other processes start fast.

    @cached_property
    def policies(self) -> "PolicyLoader":
        from penstock.broker.policy import PolicyLoader

        return PolicyLoader(self.store)

    @cached_property
    def policy(self) -> "Policy":
        from penstock.broker.policy import Policy

        return Policy({})

    def has_schemas(self, queue: Queue) -> bool:
        return self.governed and self.policy.has_schemas(queue)

    def check_schemas(self, draft: Draft, queue: Queue) -> None:
        """Raises SchemaMismatch if the body does not match every schema of its queue and type."""
        if queue.governed:
            from penstock.broker.governance import check_schemas

            check_schemas(draft, queue, self.policy)

    def get_cached(self, tenant: str, scope: str, name: str) -> Queue | None:
        """Returns a cached queue, or None if `get_by_name` must be called."""
        if time.monotonic() < self.fresh_until:
            return self.by_name.get((tenant, scope, name))
        return None

    async def get(self, tenant: str, scope: str, name: str) -> Queue:
        """Returns the queue as it was at most CACHE_TTL_S ago."""
        queue = self.get_cached(tenant, scope, name)
        return queue or await self.get_by_name(tenant, scope, name)

    async def get_by_name(self, tenant: str, scope: str, name: str) -> Queue:
        await self.refresh()
        queue = self.by_name.get((tenant, scope, name))
        if queue is None:
            where = "" if scope == "default" else f" in scope {scope!r}"
            hint = self.suggest(tenant, scope, name) if self.suggests else ""
            raise NotFound(f"no queue named {clip(name)}{where}{hint}")
        return queue

    def suggest(self, tenant: str, scope: str, name: str) -> str:
        from difflib import get_close_matches

        alike = (
            each
            for in_tenant, in_scope, each in self.by_name
            if (in_tenant, in_scope) == (tenant, scope) and abs(len(each) - len(name)) <= 2
        )
        near = get_close_matches(name, islice(alike, MAX_COMPARED_QUEUES), n=1)
        return f"; did you mean {near[0]!r}?" if near else ""

    async def get_by_id(self, queue_id: int) -> Queue:
        if queue_id not in self.by_id or time.monotonic() >= self.fresh_until:
            await self.refresh()
        try:
            return self.by_id[queue_id]
        except KeyError:
            raise NotFound(f"no queue with id {queue_id}") from None

    async def list_queues(self) -> list[Queue]:
        await self.refresh()
        return list(self.by_id.values())

    async def refresh(self) -> None:
        """Loads every change that was committed before the call. Concurrent callers share a read.

        A caller that arrives during a read shares the next one: the current one may be too old.
        """
        if self.next_read is None:
            self.next_read = asyncio.ensure_future(self._read_after(self.reading))
        # Shielded: other callers need the read when one is cancelled.
        await asyncio.shield(self.next_read)

    async def _read_after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait((earlier,))
        self.reading, self.next_read = self.next_read, None
        await self._read()

    async def _read(self) -> None:
        """Reads the queues again only if their version changed."""
        # What is read is as old as the version, however long the rest takes.
        changes, fresh_until = self.changes, time.monotonic() + CACHE_TTL_S
        if self.governed:
            await self.policies.rules.save_suspensions()
        version = await self.store.directory_version()
        if version != self.version:
            queues = mark_archived(await self.store.queues(), await list_archived(self.store))
            if self.governed or await is_governed(self.store, queues):
                queues = await self._load_policy(queues)
            self.by_id = {queue.id: queue for queue in queues}
            self.by_name = index_by_name(queues)
            self.version = version
        if changes == self.changes:
            self.fresh_until = fresh_until

    async def _load_policy(self, queues: list[Queue]) -> list[Queue]:
        """Returns the queues, with those marked that the policy governs."""
        self.policy = policy = await self.policies.load(index_by_name(queues))
        self.governed = True
        return [
            replace(queue, governed=True) if policy.governs(queue) else queue for queue in queues
        ]

    def forget(self) -> None:
        """Invalidates the cache, including a read in flight, which may be older."""
        self.changes += 1
        self.fresh_until = 0.0


def index_by_name(queues: Iterable[Queue]) -> dict[tuple[str, str, str], Queue]:
    return {
        (queue.scope.tenant, queue.scope.name, queue.name): queue
        for queue in queues
        if queue.state is not QueueState.DELETED
    }


async def is_governed(store: Store, queues: Iterable[Queue]) -> bool:
    """True if the store has what a policy consists of."""
    if any(queue.settings.kind == "broadcast" for queue in queues):
        return True
    return bool(await store.documents(RULE, "", 1) or await store.documents(BINDING, "", 1))


async def list_archived(store: Store) -> set[tuple[str, str]]:
    """Returns tenant and name of each archived scope."""
    found = await list_documents(store, SCOPE)
    profiles = ((each.name, decode_document(each, ScopeProfile)) for each in found)
    return {split_scope_name(name) for name, profile in profiles if profile.archived}


def mark_archived(queues: list[Queue], archived: set[tuple[str, str]]) -> list[Queue]:
    if not archived:
        return queues
    return [
        replace(queue, scope=replace(queue.scope, paused=True, archived=True))
        if (queue.scope.tenant, queue.scope.name) in archived
        else queue
        for queue in queues
    ]


def split_scope_name(document_name: str) -> tuple[str, str]:
    tenant, _, scope = document_name.partition("/")
    return tenant, scope
