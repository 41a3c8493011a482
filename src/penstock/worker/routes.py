"""Which handler takes a message, in which lane, and which queues feed which lanes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from penstock import tracing
from penstock.broker import Broker
from penstock.errors import InvalidInput
from penstock.queue import Queue
from penstock.worker.ack_first import AckFirstHandler
from penstock.worker.batches import BatchExecutor
from penstock.worker.context import Context
from penstock.worker.handler import Handler
from penstock.worker.lanes import AsyncExecutor, Executor, ResultSink
from penstock.worker.options import WorkerOptions
from penstock.worker.processes import ProcessExecutor
from penstock.worker.threads import ThreadExecutor
from penstock.worker.traced import TracedHandler

Route: TypeAlias = tuple[Handler, Executor]


class HandlerRoutes:
    """A lane of coroutines, one of threads, one of processes, and one for each batch handler."""

    def __init__(
        self,
        ends: ResultSink,
        options: WorkerOptions,
        acked: Callable[[Context], Awaitable[bool]],
    ) -> None:
        self.ends = ends
        self.acked = acked
        self.options = options
        self.queues: dict[int, Queue] = {}
        # By queue and type; type None is for whoever takes any.
        self.table: dict[tuple[int, str | None], Route] = {}
        self.shared: dict[str, Executor] = {}
        self.lanes: list[Executor] = []
        self.fed: dict[str, list[Executor]] = {}

    async def open(self, broker: Broker, handlers: Sequence[Handler], scope: str) -> None:
        for handler in handlers:
            queue = await broker.admin.queue(handler.queue, scope=scope)
            self.queues[queue.id] = queue
            if queue.settings.shell and handler.executor != "shell":
                raise InvalidInput(
                    f"queue {queue.name!r} is for shell jobs; {handler.name!r} needs another one"
                )
            if (queue.id, handler.type) in self.table:
                what = "messages of any type" if handler.type is None else repr(handler.type)
                raise InvalidInput(f"queue {queue.name!r} has two handlers for {what}")
            kept = AckFirstHandler(handler, self.acked) if handler.ack_first else handler
            # What runs in another process is not seen from here.
            if tracing.is_enabled() and handler.executor in ("async", "thread"):
                kept = TracedHandler(kept)
            lane = self.make_executor(kept)
            self.table[queue.id, handler.type] = (kept, lane)
            self.fed.setdefault(queue.name, []).append(lane)

    def handler_name(self, context: Context) -> str:
        delivery = context.delivery
        route = self.table.get((delivery.queue_id, delivery.type))
        route = route or self.table.get((delivery.queue_id, None))
        return delivery.type if route is None else route[0].name

    def make_executor(self, handler: Handler) -> Executor:
        if handler.batch is not None:
            return self.add_executor(BatchExecutor(handler, self.ends, self.options.grace))
        kind = handler.executor if handler.executor in ("thread", "process") else "async"
        if kind not in self.shared:
            self.shared[kind] = self.add_executor(self.open_shared(kind))
        return self.shared[kind]

    def open_shared(self, kind: str) -> Executor:
        count = self.options.concurrency
        match kind:
            case "thread":
                return ThreadExecutor(count, self.ends)
            case "process":
                return ProcessExecutor(count, self.ends)
        return AsyncExecutor(count, self.ends, self.options.grace)

    def add_executor(self, lane: Executor) -> Executor:
        self.lanes.append(lane)
        return lane

    def group_queues(self) -> list[tuple[list[str], list[Executor]]]:
        """Queues that share a lane are fetched together; a full lane holds up no other group."""
        groups: list[tuple[list[str], list[Executor]]] = []
        for name, lanes in self.fed.items():
            names, fed = [name], list(dict.fromkeys(lanes))
            for group in [each for each in groups if not set(each[1]).isdisjoint(fed)]:
                groups.remove(group)
                names = group[0] + names
                fed += [lane for lane in group[1] if lane not in fed]
            groups.append((names, fed))
        return groups
