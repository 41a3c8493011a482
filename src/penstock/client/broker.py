"""The broker of a remote server, for apps and workers."""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Any, Self, cast

from penstock import tracing
from penstock.broker.artifacts import Artifacts
from penstock.broker.consume import ClaimResult, Held, QueueSelector
from penstock.broker.group_commit import GroupCommit
from penstock.broker.local import Broker
from penstock.broker.messages import Admin
from penstock.broker.queue_cache import CACHE_TTL_S, QueueCache
from penstock.client.client import Client
from penstock.client.mapping import FenceLedger, make_worker_info
from penstock.errors import InvalidInput, NotFound
from penstock.model.message import Draft, Flag, Meta, Moment, Settlement
from penstock.model.queue import Queue
from penstock.model.store_types import (
    Answer,
    AnswerKind,
    Completion,
    Entry,
    Extension,
    Lease,
    Lock,
    Mark,
    Published,
    WorkerInfo,
)
from penstock.outage import Outages
from penstock.store import Store
from penstock.wire.fields import to_moment
from penstock.wire.queues import Stats, Workers

# Server-side wait in seconds of claims without their own. Stopping workers wait for it.
HELD = 1.0
# The smallest extension never shortens a lease, and shows whether it is held.
MIN_EXTENSION_S = 0.1
NO_TRANSACTION = "caller transactions are not available over HTTP"


class RemoteBroker(Broker):
    """A broker whose operations are HTTP calls of a client."""

    def __init__(
        self, url: str, ledger: FenceLedger, key: str | None = None, outages: Outages | None = None
    ) -> None:
        self.outages = outages or Outages()
        self.client = Client(url, key=key, ledger=ledger)
        self.tenant = "default"
        self.store = cast(Store, RemoteStore(self.client))
        self.directory = RemoteDirectory(self.client)
        self.lanes = cast(GroupCommit, RemoteLanes(self.client))
        self.admin = cast(Admin, self.client.admin)
        self.artifacts = cast(Artifacts, self.client.artifacts)

    async def publish(self, draft: Draft, *, scope: str = "default") -> Published:
        if tracing.is_enabled():
            with tracing.trace_publish([draft]) as (draft,):
                return await self.client.publish(draft, scope=scope)
        return await self.client.publish(draft, scope=scope)

    async def publish_many(
        self, drafts: Sequence[Draft], *, atomic: bool = False, scope: str = "default"
    ) -> list[Published]:
        if tracing.is_enabled():
            with tracing.trace_publish(drafts) as drafts:
                return await self.client.publish_many(drafts, atomic=atomic, scope=scope)
        return await self.client.publish_many(drafts, atomic=atomic, scope=scope)

    async def admit(self, draft: Draft, *, scope: str = "default") -> Entry:
        raise InvalidInput(NO_TRANSACTION)

    async def claim(
        self, *selectors: QueueSelector, wait: float = 0.0, **given: Any
    ) -> ClaimResult:
        return await self.client.claim(*selectors, wait=wait or HELD, **given)

    async def complete_many(self, items: Sequence[Completion]) -> list[Answer]:
        return await self.client.complete_many(items)

    async def settle_many(self, items: Sequence[tuple[Held, Settlement]]) -> list[Answer]:
        return await self.client.settle_many(items)

    async def extend_many(self, items: Sequence[Extension]) -> list[Answer]:
        return await self.client.extend_many(items)


class RemoteLanes:
    """Completes directly, because the server groups commits of all its clients."""

    def __init__(self, client: Client) -> None:
        self.complete = client.complete_many


class RemoteDirectory(QueueCache):
    """Queues, cached for CACHE_TTL_S."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.by_id: dict[int, Queue] = {}
        self.known: dict[tuple[str, str], tuple[Queue, float]] = {}

    def get_cached(self, tenant: str, scope: str, name: str) -> Queue | None:
        queue, until = self.known.get((scope, name), (None, 0.0))
        return queue if time.monotonic() < until else None

    async def get_by_name(self, tenant: str, scope: str, name: str) -> Queue:
        queue = await self.client.admin.queue(name, scope=scope)
        self.known[scope, name] = queue, time.monotonic() + CACHE_TTL_S
        self.by_id[queue.id] = queue
        return queue

    async def get_by_id(self, queue_id: int) -> Queue:
        if queue_id not in self.by_id:
            raise NotFound(f"no queue with id {queue_id}")
        return self.by_id[queue_id]

    def forget(self) -> None:
        self.known.clear()


class RemoteStore:
    """The part of the store interface that apps and workers use."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.looks = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.client.close()

    def in_transaction(self, connection: object) -> bool:
        raise InvalidInput(NO_TRANSACTION)

    def complete_on(self, connection: object, item: Completion) -> None:
        raise InvalidInput(NO_TRANSACTION)

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        raise InvalidInput(NO_TRANSACTION)

    async def result(self, id: int) -> bytes | None:
        return await self.client.admin.result(id)

    @property
    def wakes(self) -> int:
        return self.looks

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        """Returns at once, because the next claim waits on the server."""
        self.looks += 1
        await asyncio.sleep(0)

    async def mark(self, marks: Sequence[Mark]) -> list[Answer]:
        return await self.client.mark(marks)

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        items = [Extension(lock.id, lock.fence, MIN_EXTENSION_S) for lock in locks]
        answers = await self.client.extend_many(items)
        return [make_lease(*each) for each in zip(locks, answers, strict=True)]

    async def depths(self, ended: int) -> dict[tuple[int, str], int]:
        """Returns the server's cached counts of the queues this client has used."""
        ledger, found = self.client.ledger, {}
        for scope in {scope for scope, _ in ledger.of_name}:
            told = await self.client.transport.send(
                "GET", "/v1/stats", gives=Stats, query={"scope": scope}
            )
            for each in told.queues:
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
        sent = {"host": worker.host, "pid": worker.pid, "queues": worker.queues}
        await self.client.transport.exchange("PUT", f"/v1/workers/{worker.id}", sent)

    async def delete_worker(self, worker_id: str) -> None:
        await self.client.transport.exchange("DELETE", f"/v1/workers/{worker_id}")


def make_lease(lock: Lock, answer: Answer) -> Lease | None:
    """Builds a lease from what the server reports: that it is held, and cancel requests."""
    if answer.kind not in (AnswerKind.DONE, AnswerKind.BUSY):
        return None
    flags = Flag.CANCEL_REQUESTED if answer.cancel_requested else 0
    until = answer.lease_until or 0
    return Lease(lock.id, lock.fence, 0, 0, 0, flags, 0, until, MIN_EXTENSION_S, 0, Meta(), 0)
