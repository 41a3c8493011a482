"""Which handler takes a message, in which lane, and which queues feed which lanes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from penstock import tracing
from penstock.broker import Broker
from penstock.errors import InvalidInput
from penstock.queue import Queue
from penstock.worker.ack_first import AckFirst
from penstock.worker.batches import BatchLane
from penstock.worker.context import Context
from penstock.worker.handler import Handler
from penstock.worker.lanes import AsyncLane, Ends, Lane
from penstock.worker.options import WorkerOptions
from penstock.worker.processes import ProcessLane
from penstock.worker.threads import ThreadLane
from penstock.worker.traced import Traced

Route: TypeAlias = tuple[Handler, Lane]


class Routes:
    """A lane of coroutines, one of threads, one of processes, and one for each batch handler."""

    def __init__(
        self,
        ends: Ends,
        options: WorkerOptions,
        acked: Callable[[Context], Awaitable[bool]],
    ) -> None:
        self.ends = ends
        self.acked = acked
        self.options = options
        self.queues: dict[int, Queue] = {}
        # By queue and type; type None is for whoever takes any.
        self.table: dict[tuple[int, str | None], Route] = {}
        self.shared: dict[str, Lane] = {}
        self.lanes: list[Lane] = []
        self.fed: dict[str, list[Lane]] = {}

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
            kept = AckFirst(handler, self.acked) if handler.ack_first else handler
            # What runs in another process is not seen from here.
            if tracing.on() and handler.executor in ("async", "thread"):
                kept = Traced(kept)
            lane = self.lane(kept)
            self.table[queue.id, handler.type] = (kept, lane)
            self.fed.setdefault(queue.name, []).append(lane)

    def handler_name(self, context: Context) -> str:
        delivery = context.delivery
        route = self.table.get((delivery.queue_id, delivery.type))
        route = route or self.table.get((delivery.queue_id, None))
        return delivery.type if route is None else route[0].name

    def lane(self, handler: Handler) -> Lane:
        if handler.batch is not None:
            return self.opened(BatchLane(handler, self.ends, self.options.grace))
        kind = handler.executor if handler.executor in ("thread", "process") else "async"
        if kind not in self.shared:
            self.shared[kind] = self.opened(self.open_shared(kind))
        return self.shared[kind]

    def open_shared(self, kind: str) -> Lane:
        count = self.options.concurrency
        match kind:
            case "thread":
                return ThreadLane(count, self.ends)
            case "process":
                return ProcessLane(count, self.ends)
        return AsyncLane(count, self.ends, self.options.grace)

    def opened(self, lane: Lane) -> Lane:
        self.lanes.append(lane)
        return lane

    def groups(self) -> list[tuple[list[str], list[Lane]]]:
        """Queues that share a lane are fetched together; a full lane holds up no other group."""
        groups: list[tuple[list[str], list[Lane]]] = []
        for name, lanes in self.fed.items():
            names, fed = [name], list(dict.fromkeys(lanes))
            for group in [each for each in groups if not set(each[1]).isdisjoint(fed)]:
                groups.remove(group)
                names = group[0] + names
                fed += [lane for lane in group[1] if lane not in fed]
            groups.append((names, fed))
        return groups
