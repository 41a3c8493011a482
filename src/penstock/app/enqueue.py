"""Enqueues tasks and publishes messages, from sync and async code."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack

from msgspec.structs import replace

from penstock.app.job import Job
from penstock.app.task import TaskOptions, apply_choices
from penstock.app.workflow import Flow
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.client.brokers import BrokerPool
from penstock.errors import InvalidInput, InvalidState, NotFound, SlugConflict
from penstock.model.broadcast import SEPARATOR
from penstock.model.message import Draft
from penstock.model.settings import change
from penstock.model.settings import get_preset as settings_of
from penstock.model.store_types import Entry
from penstock.portal import Portal
from penstock.worker.codec import Values

if TYPE_CHECKING:
    from penstock.app.task import Call, Choices
    from penstock.model.store_types import Published
    from penstock.model.waiting import SignalAnswer
    from penstock.model.workflow import PreparedWorkflow

R = TypeVar("R")
T = TypeVar("T")
anything = Values(Any, "message")

Admitted: TypeAlias = tuple[BrokerInterface, list[Entry]]
# The caller's connection that was last enqueued on: its store's URL, the broker, the connection.
caller_transaction: ContextVar[tuple[str, BrokerInterface, Any] | None] = ContextVar(
    "penstock_held", default=None
)


class Enqueuer:
    """The enqueueing part of an app."""

    def __init__(
        self,
        url: str,
        scope: str,
        tenant: str,
        artifacts: str | None = None,
        key: str | None = None,
    ) -> None:
        self.url = url
        self.scope = scope
        self.tenant = tenant
        self.artifacts = artifacts
        self.key = key
        self.portal = Portal()
        self.connections = BrokerPool(url, tenant, artifacts, key)
        self.declared: dict[str, dict[str, Any]] = {}
        # The filters of durable subscriptions that subscribers declare, by their queues.
        self.filters: dict[str, str] = {}

    def use(self, url: str) -> None:
        """Switches to another store."""
        self.url = url
        self.connections = BrokerPool(url, self.tenant, self.artifacts, self.key)

    async def broker(self) -> BrokerInterface:
        """Returns the broker of the running event loop."""
        return await self.connections.get_broker()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine for sync callers."""
        return self.portal.run(work)

    def queue(self, name: str, *, preset: str = "default", **settings: Any) -> None:
        """Declares a queue. It is created with these settings on first use."""
        change(settings_of(preset), settings)
        self.declared[name] = {"preset_name": preset, **settings}

    def enqueue_many(self, calls: Iterable[Call[R]], *, atomic: bool = False) -> list[Job[R]]:
        """Enqueues all calls in one durable step.

        A refused call is reported by `refused` of its job. With `atomic`, or for a single call, it
        raises instead, and nothing is enqueued.
        """
        listed = list(calls)
        connection = self.find_connection(listed)
        if connection is not None:
            admitted = self.run(self.admit(connection, [call.draft for call in listed]))
            return self.publish_on(connection, listed, admitted)
        self.refuse_open_transaction()
        return self.run(self.publish_calls(listed, atomic=atomic))

    async def aenqueue_many(
        self, calls: Iterable[Call[R]], *, atomic: bool = False
    ) -> list[Job[R]]:
        listed = list(calls)
        connection = self.find_connection(listed)
        if connection is not None:
            admitted = await self.admit(connection, [call.draft for call in listed])
            return await self.apublish_on(connection, listed, admitted)
        self.refuse_open_transaction()
        return await self.publish_calls(listed, atomic=atomic)

    async def asignal(
        self, reference: int | str, name: str, body: Any = None, *, key: str | None = None
    ) -> SignalAnswer:
        """Sends a signal to a message, which receives it when its run asks for it."""
        sent = body if isinstance(body, bytes) else anything.encode(body)
        broker = await self.broker()
        return await broker.waits.signal(reference, name, sent, key=key, scope=self.scope)

    def signal(
        self, reference: int | str, name: str, body: Any = None, *, key: str | None = None
    ) -> SignalAnswer:
        """Does the same as `asignal`, for sync code."""
        return self.run(self.asignal(reference, name, body, key=key))

    def find_connection(self, calls: Sequence[Call[Any]]) -> Any:
        """Returns the common connection of the calls, or None: in a simulation there is none."""
        connections = {id(call.connection): call.connection for call in calls}
        if len(connections) > 1:
            raise InvalidInput("calls that are enqueued together must use the same connection")
        if self.connections.simulated is not None:
            return None
        return next(iter(connections.values()), None)

    async def publish_calls(self, calls: Sequence[Call[R]], *, atomic: bool) -> list[Job[R]]:
        broker = await self.broker()
        await self.ensure_queues(broker, {call.draft.queue for call in calls})
        drafts = [call.draft for call in calls]
        if len(drafts) == 1:
            outcomes = [await broker.publish(drafts[0], scope=self.scope)]
        else:
            outcomes = await broker.publish_many(drafts, atomic=atomic, scope=self.scope)
        return [self.make_job(call, each) for call, each in zip(calls, outcomes, strict=True)]

    def make_job(self, call: Call[R], outcome: Published) -> Job[R]:
        refused = None
        if outcome.code is not None:
            from penstock.broker.publish import REFUSALS

            refused = REFUSALS.get(outcome.code, InvalidInput)(outcome.error)
        return Job(self, outcome.id, call.task.results, outcome.duplicate, refused)

    async def admit(self, connection: Any, drafts: Sequence[Draft]) -> Admitted:
        """Prepares an enqueue on the caller's connection, without writing."""
        broker = await self.broker()
        await self.ensure_queues_outside(broker, connection, {draft.queue for draft in drafts})
        return broker, [await broker.admit(draft, scope=self.scope) for draft in drafts]

    async def ensure_queues_outside(
        self, broker: BrokerInterface, connection: Any, names: set[str]
    ) -> None:
        """Creates missing queues, unless the caller's transaction blocks that."""
        for name in names:
            if await self.is_missing(broker, name) and broker.in_transaction(connection):
                raise InvalidState(
                    f"queue {name!r} does not exist and cannot be created inside your transaction;"
                    " call app.setup() before, or run penstock migrate MODULE:APP"
                )
        await self.ensure_queues(broker, names)

    async def prepare_workflow(self, flow: Flow) -> tuple[BrokerInterface, PreparedWorkflow]:
        """Prepares a workflow that starts on the caller's connection, without writing."""
        broker = await self.broker()
        queues = {node.draft.queue for node in flow.nodes}
        await self.ensure_queues_outside(broker, flow.connection, queues)
        prepared = await broker.workflows.prepare(
            flow.name, flow.nodes, key=flow.key, scope=self.scope
        )
        return broker, prepared

    def note_transaction(self, broker: BrokerInterface, connection: Any) -> None:
        """Remembers the caller's connection, to refuse a plain enqueue that would block."""
        caller_transaction.set((self.url, broker, connection))

    def publish_on(
        self, connection: Any, calls: Sequence[Call[R]], admitted: Admitted
    ) -> list[Job[R]]:
        """Publishes in the caller's transaction, on its thread."""
        broker, entries = admitted
        jobs = [
            self.make_job(call, broker.publish_on(connection, call.draft, entry, wake=call.wake))
            for call, entry in zip(calls, entries, strict=True)
        ]
        self.note_transaction(broker, connection)
        return jobs

    async def apublish_on(
        self, connection: Any, calls: Sequence[Call[R]], admitted: Admitted
    ) -> list[Job[R]]:
        broker, entries = admitted
        jobs = [
            self.make_job(
                call, await broker.apublish_on(connection, call.draft, entry, wake=call.wake)
            )
            for call, entry in zip(calls, entries, strict=True)
        ]
        self.note_transaction(broker, connection)
        return jobs

    def refuse_open_transaction(self) -> None:
        """Raises if the caller's transaction is open: a plain enqueue would deadlock with it."""
        found = caller_transaction.get()
        if found is None or found[0] != self.url:
            return
        if found[1].in_transaction(found[2]):
            raise InvalidState(
                "you have an open transaction on the store; enqueue on its connection, or commit"
                " it first"
            )
        caller_transaction.set(None)

    def workflow(self, name: str, *, key: str | None = None, connection: object = None) -> Flow:
        """Builds a workflow of tasks that wait for each other. It starts when its `with` block
        ends; with a key, once while it is stored. With a `connection`, it starts in that
        connection's transaction.
        """
        return Flow(self, name, key, connection)

    def publish(self, message: Any, type: str = "message", **choices: Unpack[Choices]) -> Published:
        """Publishes a message for subscribers: a Draft, bytes, or a value that is sent as JSON.

        The options are those of a task: queue, delay, run_at, headers... With a `connection`, the
        message is published in that connection's transaction.
        """
        draft, options = make_message(message, type, choices)
        if options.connection is None:
            self.refuse_open_transaction()
            return self.run(self.publish_draft(draft))
        broker, (entry,) = self.run(self.admit(options.connection, [draft]))
        self.note_transaction(broker, options.connection)
        return broker.publish_on(options.connection, draft, entry, wake=options.wake)

    async def apublish(
        self, message: Any, type: str = "message", **choices: Unpack[Choices]
    ) -> Published:
        """Does the same as `publish`, for async code."""
        draft, options = make_message(message, type, choices)
        if options.connection is None:
            self.refuse_open_transaction()
            return await self.publish_draft(draft)
        broker, (entry,) = await self.admit(options.connection, [draft])
        self.note_transaction(broker, options.connection)
        return await broker.apublish_on(options.connection, draft, entry, wake=options.wake)

    async def publish_draft(self, draft: Draft) -> Published:
        broker = await self.broker()
        await self.ensure_queues(broker, {draft.queue})
        return await broker.publish(draft, scope=self.scope)

    async def ensure_queues(self, broker: BrokerInterface, names: Iterable[str]) -> None:
        """Creates missing queues. Another process may create them at the same time."""
        for name in names:
            if SEPARATOR in name:
                await self.ensure_subscription(broker, name)
            elif await self.is_missing(broker, name):
                try:
                    settings = self.declared.get(name, {})
                    await broker.admin.create_queue(name, scope=self.scope, **settings)
                except SlugConflict:
                    broker.forget_queues()

    async def ensure_subscription(self, broker: BrokerInterface, child: str) -> None:
        """Creates the durable subscription `queue/name`, and its broadcast queue if missing."""
        queue, _, name = child.partition(SEPARATOR)
        if await self.is_missing(broker, queue):
            with suppress(SlugConflict):
                settings = {"kind": "broadcast", **self.declared.get(queue, {})}
                await broker.admin.create_queue(queue, scope=self.scope, **settings)
        wanted = self.filters.get(child, "")
        found = await broker.broadcasts.list_subscriptions(queue, scope=self.scope)
        if not any((each.name, each.filter) == (name, wanted) for each in found):
            await broker.broadcasts.subscribe(queue, name, filter=wanted, scope=self.scope)

    async def is_missing(self, broker: BrokerInterface, name: str) -> bool:
        if broker.find_queue(name, scope=self.scope) is not None:
            return False
        try:
            await broker.admin.queue(name, scope=self.scope)
        except NotFound:
            return True
        return False

    async def aclose(self) -> None:
        """Closes the connections of the running event loop, and those of sync callers."""
        await self.connections.close()
        if self.portal.open:
            import asyncio

            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Closes the connections of sync callers. In a coroutine, await `aclose` instead."""
        if self.portal.open:
            self.run(self.connections.close())
            self.portal.close()


def make_message(message: Any, type: str, choices: Choices) -> tuple[Draft, TaskOptions]:
    """Makes a draft of a value. A draft stays as it is: only connection and wake apply to it."""
    options = apply_choices(TaskOptions(), choices)
    if not isinstance(message, Draft):
        return make_draft(message, type, options), options
    if wrong := choices.keys() - {"connection", "wake"} or type != "message":
        named = "type" if wrong is True else ", ".join(sorted(wrong))
        raise InvalidInput(f"{named} cannot be combined with a Draft; set it in the Draft")
    return message, options


def make_draft(message: Any, type: str, options: TaskOptions) -> Draft:
    if isinstance(message, bytes):
        draft = options.draft(type, message)
        return replace(draft, content_type="application/octet-stream")
    return options.draft(type, anything.encode(message))
