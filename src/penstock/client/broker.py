"""The broker of a remote server, for apps and workers."""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Self, TypeVar

from penstock import tracing
from penstock.broker.interfaces.broker import AgentFactory, ClaimResult, Merge, QueueSelector
from penstock.broker.queue_cache import CACHE_TTL_S
from penstock.client.admin import RemoteAdmin
from penstock.client.client import Client
from penstock.client.mapping import FenceLedger, make_worker_info
from penstock.errors import InvalidInput, NotFound
from penstock.model.message import Draft, Flag, Meta, Moment
from penstock.model.queue import Queue
from penstock.model.store_types import (
    Answer,
    AnswerKind,
    Completion,
    Entry,
    Extension,
    Lease,
    Lock,
    Published,
    WorkerInfo,
)
from penstock.outage import Outages
from penstock.wire.fields import to_moment
from penstock.wire.queues import Stats, Workers

T = TypeVar("T")
NO_TRANSACTION = "caller transactions are not available over HTTP"
# Server-side wait in seconds of claims without their own. Stopping workers wait for it.
HELD = 1.0
# The smallest extension never shortens a lease, and shows whether it is held.
MIN_EXTENSION_S = 0.1


class RemoteBroker:
    """Implements `BrokerInterface` by HTTP calls of a client."""

    def __init__(
        self, url: str, ledger: FenceLedger, key: str | None = None, outages: Outages | None = None
    ) -> None:
        self.outages = outages or Outages()
        # Workers have loops of their own around settles.
        self.client = client = Client(url, key=key, ledger=ledger, settle_retry=None)
        self.tenant = "default"
        self.admin = client.admin
        self.activity = client.activity
        self.filters = client.filters
        self.artifacts = client.artifacts
        self.bulk = client.bulk
        self.metrics, self.anomalies = client.metrics, client.anomalies
        self.alerts = client.alerts
        self.rules = client.rules
        self.broadcasts = client.broadcasts
        self.workflows = client.workflows
        self.schemas = client.schemas
        self.scopes = client.scopes
        self.topology = client.topology
        self.waits = client.waits
        self.queues = RemoteQueueCache(client.admin)
        self.wake_count = 0
        # The server groups the commits of all its clients.
        self.complete_claimed = self.complete_many = client.complete_many
        self.complete = client.complete
        self.seen = client.seen
        self.settle, self.settle_many = client.settle, client.settle_many
        self.extend, self.extend_many = client.extend, client.extend_many
        self.begin, self.progress = client.begin, client.progress
        self.mark_many = client.mark_many
        self.read_result = client.admin.result

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.client.close()

    async def publish(self, draft: Draft, *, scope: str = "default") -> Published:
        if tracing.is_enabled():
            with tracing.trace_publish([draft]) as (draft,):
                return await self.client.publish(draft, scope=scope)
        return await self.client.publish(draft, scope=scope)

    async def run_schedule(self, queue: str, name: str, *, scope: str = "default") -> Published:
        return await self.admin.run_schedule(queue, name, scope=scope)

    async def publish_many(
        self, drafts: Sequence[Draft], *, atomic: bool = False, scope: str = "default"
    ) -> list[Published]:
        if tracing.is_enabled():
            with tracing.trace_publish(drafts) as drafts:
                return await self.client.publish_many(drafts, atomic=atomic, scope=scope)
        return await self.client.publish_many(drafts, atomic=atomic, scope=scope)

    async def claim(
        self,
        *selectors: QueueSelector,
        consumer: str,
        limit: int = 1,
        lease: float | None = None,
        wait: float = 0.0,
        begins: bool = False,
        merge: Merge = None,
        scope: str = "default",
    ) -> ClaimResult:
        return await self.client.claim(
            *selectors,
            consumer=consumer,
            limit=limit,
            lease=lease,
            wait=wait or HELD,
            begins=begins,
            merge=merge,
            scope=scope,
        )

    # Caller transactions, which need a connection to the store.

    async def admit(self, draft: Draft, *, scope: str = "default") -> Entry:
        raise InvalidInput(NO_TRANSACTION)

    def publish_on(
        self, connection: object, draft: Draft, entry: Entry, *, wake: bool = True
    ) -> Published:
        raise InvalidInput(NO_TRANSACTION)

    async def apublish_on(
        self, connection: object, draft: Draft, entry: Entry, *, wake: bool = True
    ) -> Published:
        raise InvalidInput(NO_TRANSACTION)

    def in_transaction(self, connection: object) -> bool:
        raise InvalidInput(NO_TRANSACTION)

    def complete_on(self, connection: object, item: Completion) -> None:
        raise InvalidInput(NO_TRANSACTION)

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        raise InvalidInput(NO_TRANSACTION)

    async def explain_completions(self, locks: Sequence[Lock]) -> list[Answer]:
        raise InvalidInput(NO_TRANSACTION)

    def make_agents(self, make: "AgentFactory[T]") -> list[T]:
        """Makes none: the server runs them."""
        return []

    # Leases and waiting.

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        items = [Extension(lock.id, lock.fence, MIN_EXTENSION_S) for lock in locks]
        answers = await self.client.extend_many(items)
        return [make_lease(*each) for each in zip(locks, answers, strict=True)]

    @property
    def wakes(self) -> int:
        return self.wake_count

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        """Returns at once, because the next claim waits on the server."""
        self.wake_count += 1
        await asyncio.sleep(0)

    # Queues.

    def find_queue(self, name: str, *, scope: str = "default") -> Queue | None:
        return self.queues.find(scope, name)

    async def get_queue(self, name: str, *, scope: str = "default") -> Queue:
        return self.queues.find(scope, name) or await self.queues.fetch(scope, name)

    def find_queue_by_id(self, queue_id: int) -> Queue | None:
        return self.queues.by_id.get(queue_id)

    async def get_queue_by_id(self, queue_id: int) -> Queue:
        if (queue := self.queues.by_id.get(queue_id)) is None:
            raise NotFound(f"no queue with id {queue_id}")
        return queue

    def note_lost_lock(self, id: int, fence: int) -> None:
        """Does nothing: the server that refused the settle has noted it."""

    def forget_queues(self) -> None:
        self.queues.known.clear()

    # Counts and workers.

    async def depths(self, ended: int = 0) -> dict[tuple[int, str], int]:
        """Returns the server's cached counts of the queues this client has used."""
        ledger, found = self.client.ledger, {}
        for scope in {scope for scope, _ in ledger.of_name}:
            pages = self.client.transport.read_pages("/v1/stats", Stats, {"scope": scope})
            async for each in (each async for page in pages for each in page.queues):
                number = ledger.assign_number(scope, each.queue)
                found[number, "ready"], found[number, "lease"] = each.ready, each.claimed
        return found

    async def now(self) -> Moment:
        return to_moment((await self._fetch_workers()).now)

    async def workers(self) -> list[WorkerInfo]:
        return [make_worker_info(each) for each in (await self._fetch_workers()).workers]

    async def _fetch_workers(self) -> Workers:
        return await self.client.transport.send("GET", "/v1/workers", gives=Workers)

    async def save_worker(self, worker: WorkerInfo) -> None:
        sent = {
            "host": worker.host,
            "pid": worker.pid,
            "queues": worker.queues,
            "types": worker.types,
            "slots": worker.slots,
            "version": worker.version,
        }
        if worker.scope != "default":
            # Older servers refuse the field.
            sent["scope"] = worker.scope
        await self.client.transport.exchange("PUT", f"/v1/workers/{worker.id}", sent)

    async def stop_worker(self, worker_id: str) -> None:
        await self.client.transport.exchange("POST", f"/v1/workers/{worker_id}/stop")

    async def delete_worker(self, worker_id: str) -> None:
        await self.client.transport.exchange("DELETE", f"/v1/workers/{worker_id}")


class RemoteQueueCache:
    """Queues, cached for CACHE_TTL_S by name, and as last seen by id."""

    def __init__(self, admin: RemoteAdmin) -> None:
        self.admin = admin
        self.by_id: dict[int, Queue] = {}
        self.known: dict[tuple[str, str], tuple[Queue, float]] = {}

    def find(self, scope: str, name: str) -> Queue | None:
        queue, until = self.known.get((scope, name), (None, 0.0))
        return queue if time.monotonic() < until else None

    async def fetch(self, scope: str, name: str) -> Queue:
        queue = await self.admin.queue(name, scope=scope)
        self.known[scope, name] = queue, time.monotonic() + CACHE_TTL_S
        self.by_id[queue.id] = queue
        return queue


def make_lease(lock: Lock, answer: Answer) -> Lease | None:
    """Builds a lease from what the server reports: that it is held, and cancel requests."""
    if answer.kind not in (AnswerKind.DONE, AnswerKind.BUSY):
        return None
    flags = Flag.CANCEL_REQUESTED if answer.cancel_requested else 0
    until = answer.lease_until or 0
    return Lease(
        id=lock.id,
        fence=lock.fence,
        queue_id=0,
        attempts=0,
        deliveries=0,
        flags=flags,
        claimed_at=0,
        lease_until=until,
        length=MIN_EXTENSION_S,
        now=0,
        meta=Meta(),
        first_claimed_at=0,
    )
