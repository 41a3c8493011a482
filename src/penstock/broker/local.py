"""The broker of one tenant on one store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from msgspec.structs import replace

from penstock.broker.consume import Consumer
from penstock.broker.group_commit import GroupCommit
from penstock.broker.messages import Admin
from penstock.broker.publish import Publisher
from penstock.broker.queue_cache import QueueCache
from penstock.broker.services import BrokerServices
from penstock.model.message import Verb
from penstock.outage import Outages
from penstock.rules.settlements import check_seen

if TYPE_CHECKING:
    from penstock.artifacts.service import ArtifactService
    from penstock.broker.bulk.actions import Bulk
    from penstock.broker.interfaces.broker import AgentFactory
    from penstock.broker.routing.admin import RuleAdmin
    from penstock.model.bulk import BulkActor
    from penstock.model.message import Moment
    from penstock.model.queue import Queue
    from penstock.model.store_types import Answer, Completion, Lease, Lock, Published, WorkerInfo
    from penstock.rules.masking import Reveals
    from penstock.rules.rule_checks import Allows
    from penstock.store import Capabilities, Store

T = TypeVar("T")


class Broker(BrokerServices):
    """Publishes and consumes messages. `admin` manages queues, `schemas` their schemas.

    `activity` lists what happened.

    It implements `BrokerInterface`. Brokers of one store may share `directory`.
    """

    def __init__(
        self,
        store: Store,
        *,
        tenant: str = "default",
        artifact_service: ArtifactService | None = None,
        outages: Outages | None = None,
        directory: QueueCache | None = None,
    ) -> None:
        self.store = store
        self.outages = outages or Outages()
        self.tenant = tenant
        self.artifact_service = artifact_service
        self.directory = directory or QueueCache(store, suggests=True)
        self.admin = Admin(store, self.directory, tenant)
        commits = GroupCommit(store, store.capabilities.max_batch)
        self._add_publisher(Publisher(store, self.directory, commits, tenant))
        self._add_consumer(Consumer(store, self.directory, commits, tenant))
        self.complete_claimed = commits.complete

    def _add_publisher(self, publisher: Publisher) -> None:
        """Takes over the verbs themselves, so that a call passes no method of the broker."""
        self.publisher = publisher
        self.publish = publisher.publish
        self.publish_many = publisher.publish_many
        self.admit = publisher.admit
        self.publish_on = publisher.publish_on
        self.apublish_on = publisher.apublish_on

    async def run_schedule(self, queue: str, name: str, *, scope: str = "default") -> Published:
        """Publishes the message of a schedule now. Its next tick does not change."""
        found = await self.admin.get_schedule(queue, name, scope=scope)
        return await self.publish(found.draft, scope=scope)

    def _add_consumer(self, consumer: Consumer) -> None:
        self.claim = consumer.claim
        self.complete = consumer.complete
        self.complete_many = consumer.complete_many
        self.settle = consumer.settle
        self.settle_many = consumer.settle_many
        self.extend = consumer.extend
        self.extend_many = consumer.extend_many
        self.begin = consumer.begin
        self.progress = consumer.progress
        self.mark_many = consumer.mark_many

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the store and the artifact storage."""
        if "waits" in vars(self):
            await self.waits.close()
        await self.store.close()
        if self.artifact_service is not None:
            self.artifact_service.close()

    @property
    def capabilities(self) -> Capabilities:
        return self.store.capabilities

    def limit_bulk(self, actor: BulkActor) -> Bulk:
        """Returns the bulk actions with the rights of a caller."""
        from penstock.broker.bulk.actions import Bulk

        return Bulk(self.store, self.directory, self.tenant, actor)

    def limit_admin(self, allows: Callable[[str, str], bool], reveals: Reveals) -> Admin:
        """Returns the admin operations for the scopes and queues that `allows` permits."""
        return Admin(self.store, self.directory, self.tenant, allows, reveals)

    def limit_rules(self, author: str, allows: Allows) -> RuleAdmin:
        """Returns the rules as managed by an author whose rights `allows` checks."""
        from penstock.broker.routing.admin import RuleAdmin

        return RuleAdmin(self.store, self.directory, self.tenant, author, allows)

    def make_agents(self, make: AgentFactory[T]) -> list[T]:
        """Makes agents on the store of this broker."""
        return make(self.store, self.directory, self.artifact_service)

    async def seen(self, queue: str, key: str, *, scope: str = "default") -> int | None:
        """Returns the message of the queue whose completion recorded the key in the last day."""
        check_seen((key,))
        found = await self.directory.get(self.tenant, scope, queue)
        return await self.store.seen(found.id, key)

    # Caller transactions.

    def in_transaction(self, connection: object) -> bool:
        """True if an open transaction of the connection blocks other writers."""
        return self.store.in_transaction(connection)

    def complete_on(self, connection: object, item: Completion) -> None:
        """Completes the message when the caller commits. Raises LockLost."""
        self.store.complete_on(connection, item)

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        """Does the same on an async connection."""
        await self.store.acomplete_on(connection, item)

    async def explain_completions(self, locks: Sequence[Lock]) -> list[Answer]:
        """Returns the answer that a complete would get. CHANGED means that the lock is held."""
        return await self.store.explain(locks, [Verb.COMPLETE] * len(locks))

    # Leases and waiting.

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        """Returns the lease of each lock, or None where the fence is not the current one."""
        return await self.store.leases(locks)

    @property
    def wakes(self) -> int:
        """Counts notifications of new work. It only grows."""
        return self.store.wakes

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        """Waits until one of the queues may have work. Only a hint."""
        await self.store.wait_ready(queue_ids, timeout, since)

    # Queues.

    def find_queue(self, name: str, *, scope: str = "default") -> Queue | None:
        """Returns the queue if it is cached."""
        return self.directory.get_cached(self.tenant, scope, name)

    async def get_queue(self, name: str, *, scope: str = "default") -> Queue:
        """Returns the queue as it was at most a second ago."""
        return await self.directory.get(self.tenant, scope, name)

    def find_queue_by_id(self, queue_id: int) -> Queue | None:
        """Returns the queue as it was last seen."""
        return self.directory.by_id.get(queue_id)

    async def get_queue_by_id(self, queue_id: int) -> Queue:
        return await self.directory.get_by_id(queue_id)

    async def list_queues(self) -> list[Queue]:
        """Returns the queues of the tenant as they were at most a second ago."""
        queues = await self.directory.list_queues()
        return [queue for queue in queues if queue.scope.tenant == self.tenant]

    def note_lost_lock(self, id: int, fence: int) -> None:
        """Remembers a settle that was refused because another consumer has the message."""
        self.directory.lost_locks.note(id, fence)

    def forget_queues(self) -> None:
        """Invalidates the cache of queues."""
        self.directory.forget()

    # Counts, results and workers.

    async def now(self) -> Moment:
        return await self.store.now()

    async def read_result(self, id: int) -> bytes | None:
        """Returns the result of a message. `admin.result` also checks whose it is."""
        return await self.store.result(id)

    async def depths(self, ended: int = 0) -> dict[tuple[int, str], int]:
        """Counts messages by queue id and place. Of finished ones, only the last `ended` count."""
        return await self.store.depths(ended)

    async def workers(self) -> list[WorkerInfo]:
        return await self.store.workers()

    async def save_worker(self, worker: WorkerInfo) -> None:
        """Registers the worker, or renews its registration."""
        await self.store.save_worker(replace(worker, tenant=self.tenant))

    async def stop_worker(self, worker_id: str) -> None:
        """Requests the worker to stop. Workers check every second."""
        await self.store.stop_worker(worker_id)

    async def delete_worker(self, worker_id: str) -> None:
        await self.store.delete_worker(worker_id)
