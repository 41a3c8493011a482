"""Dispatches claimed messages to handlers and their executors."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import structlog

from penstock import tracing
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.errors import InvalidInput
from penstock.model.message import Flag, Leased, Nack, Park, Settlement, SettleReject
from penstock.model.queue import Queue
from penstock.model.settings import QueueSettings
from penstock.rules.backoff import compute_limits
from penstock.worker.context import Context, RunReporter
from penstock.worker.executors.base import AsyncExecutor, Executor, ResultSink, Run
from penstock.worker.executors.batches import BatchExecutor
from penstock.worker.executors.processes import ProcessExecutor
from penstock.worker.executors.threads import ThreadExecutor
from penstock.worker.handler import Handler
from penstock.worker.heartbeat import Heartbeat
from penstock.worker.middleware import AckFirstHandler, TracedHandler
from penstock.worker.options import WorkerOptions
from penstock.worker.quarantine import Quarantine, may_be_killer

log = structlog.get_logger()
Route: TypeAlias = tuple[Handler, Executor]


class HandlerRoutes:
    """Maps queue and type to a handler and its executor.

    Async, thread and process handlers share an executor each. A batch handler and a subscriber
    with `max_workers` have their own.
    """

    def __init__(
        self,
        sink: ResultSink,
        options: WorkerOptions,
        ack_before_run: Callable[[Context], Awaitable[bool]],
    ) -> None:
        self.sink = sink
        self.ack_before_run = ack_before_run
        self.options = options
        self.queues: dict[int, Queue] = {}
        # Keyed by queue and type. Type None is the handler for any type.
        self.table: dict[tuple[int, str | None], Route] = {}
        self.shared: dict[object, Executor] = {}
        self.executors: list[Executor] = []
        self.executors_by_queue: dict[str, list[Executor]] = {}

    async def open(self, broker: BrokerInterface, handlers: Sequence[Handler], scope: str) -> None:
        for handler in handlers:
            queue = await broker.admin.queue(handler.queue, scope=scope)
            self.queues[queue.id] = queue
            if queue.settings.shell and handler.executor != "shell":
                raise InvalidInput(
                    f"queue {queue.name!r} runs only shell jobs; give {handler.name!r} another one"
                )
            if (queue.id, handler.type) in self.table:
                what = "messages of any type" if handler.type is None else repr(handler.type)
                raise InvalidInput(f"queue {queue.name!r} has two handlers for {what}")
            if queue.settings.retry.on_nack == "dead" and handler.lacks_strategy:
                log.warning("no_retry_strategy", queue=queue.name, handler=handler.name)
            # A run that returns nothing then needs a result all the same.
            handler.plain = handler.plain and not queue.settings.require_result
            kept = AckFirstHandler(handler, self.ack_before_run) if handler.ack_first else handler
            # Runs in other processes cannot be traced from here.
            if tracing.is_enabled() and handler.executor in ("async", "thread"):
                kept = TracedHandler(kept)
            lane = self.make_executor(kept)
            self.table[queue.id, handler.type] = (kept, lane)
            self.executors_by_queue.setdefault(queue.name, []).append(lane)

    def handler_name(self, context: Context) -> str:
        delivery = context.delivery
        route = self.find(delivery.queue_id, delivery.type)
        return delivery.type if route is None else route[0].name

    def find(self, queue_id: int, type_: str) -> Route | None:
        return self.table.get((queue_id, type_)) or self.table.get((queue_id, None))

    def make_executor(self, handler: Handler) -> Executor:
        if handler.batch is not None:
            return self.add_executor(BatchExecutor(handler, self.sink, self.options.grace))
        kind = handler.executor if handler.executor in ("thread", "process") else "async"
        # The queues of one subscriber with max_workers share them.
        key = kind if handler.max_workers is None else handler.function
        if key not in self.shared:
            count = handler.max_workers or self.options.concurrency
            self.shared[key] = self.add_executor(self.open_shared(kind, count))
        return self.shared[key]

    def open_shared(self, kind: str, count: int) -> Executor:
        match kind:
            case "thread":
                return ThreadExecutor(count, self.sink)
            case "process":
                return ProcessExecutor(count, self.sink)
        return AsyncExecutor(count, self.sink, self.options.grace)

    def add_executor(self, lane: Executor) -> Executor:
        self.executors.append(lane)
        return lane

    def group_queues(self) -> list[tuple[list[str], list[Executor]]]:
        """Groups queues that share an executor, so that a full one does not block the others."""
        groups: list[tuple[list[str], list[Executor]]] = []
        for name, lanes in self.executors_by_queue.items():
            names, fed = [name], list(dict.fromkeys(lanes))
            for group in [each for each in groups if not set(each[1]).isdisjoint(fed)]:
                groups.remove(group)
                names = group[0] + names
                fed += [lane for lane in group[1] if lane not in fed]
            groups.append((names, fed))
        return groups


class ClaimRoutes(dict[tuple[int, str], tuple[str, Route | None, list[Run]]]):
    """Finds where the messages of a claim go, once for each queue and type.

    A value has the name of the queue, the route, and the runs for the executor of that route.
    """

    def __init__(self, routes: HandlerRoutes) -> None:
        self.routes = routes
        self.runs: dict[Executor, list[Run]] = {}

    def __missing__(self, key: tuple[int, str]) -> tuple[str, Route | None, list[Run]]:
        route = self.routes.find(*key)
        runs = [] if route is None else self.runs.setdefault(route[1], [])
        self[key] = (self.routes.queues[key[0]].name, route, runs)
        return self[key]


class Dispatcher:
    """Routes claimed messages to executors, parks unknown types and quarantines suspects."""

    def __init__(
        self,
        held: dict[int, Context],
        routes: HandlerRoutes,
        suspects: Quarantine,
        heartbeat: Heartbeat,
        *,
        reporter: RunReporter,
        refuse: Callable[[Context, Settlement], None],
        settings: Callable[[Context], QueueSettings],
    ) -> None:
        self.held = held
        self.routes = routes
        self.suspects = suspects
        self.heartbeat = heartbeat
        self.reporter = reporter
        self.refuse = refuse
        self.settings = settings
        self.unknown: set[str] = set()
        # Set while there may be runs with a timeout.
        self.timed = asyncio.Event()

    def take(self, deliveries: list[Leased], lease: float) -> None:
        now = time.monotonic()
        renew_at, reporter = now + lease / 3, self.reporter
        held, targets, plain = self.held, ClaimRoutes(self.routes), True
        for delivery in deliveries:
            name, route, runs = targets[delivery.queue_id, delivery.type]
            context = held[delivery.id] = Context(delivery, name, reporter, lease, renew_at)
            if delivery.flags & Flag.OWN_LEASE:
                self.keep_own_lease(context, now)
                plain = False
            if route is None:
                self.park(context)
                continue
            handler, lane = route
            if handler.watched or delivery.meta.timeout is not None:
                context.limit = delivery.meta.timeout or handler.timeout
                self.timed.set()
                plain = False
            if delivery.deliveries > 1:
                self.quarantine(lane, (handler, context))
            else:
                runs.append((handler, context))
        self.heartbeat.watch(renew_at)
        self.heartbeat.report_claimed(deliveries, lease, plain=plain)
        for lane, runs in targets.runs.items():
            if runs:
                lane.put(runs)

    def keep_own_lease(self, context: Context, now: float) -> None:
        context.lease = context.delivery.meta.lease or context.lease
        context.renew_at = now + context.lease / 3
        self.heartbeat.watch(context.renew_at)

    def park(self, context: Context) -> None:
        kind = context.delivery.type
        if kind not in self.unknown:
            self.unknown.add(kind)
            log.warning("unknown_task", type=kind, queue=context.queue, id=context.id)
        self.refuse(context, Park())

    def quarantine(self, lane: Executor, run: Run) -> None:
        handler, context = run
        delivery, settings = context.delivery, self.settings(context)
        limits = compute_limits(delivery.meta, settings, None, delivery.attempts)
        if handler.max_deliveries is not None and delivery.deliveries > handler.max_deliveries:
            self.refuse(context, SettleReject(f"delivered {delivery.deliveries} times"))
        elif delivery.deliveries > limits[1]:
            self.refuse(context, Nack("delivered too often"))
        else:
            self.suspects.add((lane, run), isolated=may_be_killer(delivery, settings))
