"""Puts what was claimed where it belongs: into a lane, in line with the suspects, or back."""

import asyncio
import time
from collections.abc import Callable

import structlog

from penstock import lifecycle
from penstock.message import Flag, Leased, Nack, Park, Settlement
from penstock.settings import QueueSettings
from penstock.worker.context import Context, RunReporter
from penstock.worker.heart import Heartbeat
from penstock.worker.lanes import Executor, Run
from penstock.worker.routes import HandlerRoutes
from penstock.worker.suspects import Quarantine, may_be_killer

log = structlog.get_logger()


class Dispatcher:
    def __init__(
        self,
        held: dict[int, Context],
        routes: HandlerRoutes,
        suspects: Quarantine,
        heart: Heartbeat,
        *,
        desk: RunReporter,
        refuse: Callable[[Context, Settlement], None],
        settings: Callable[[Context], QueueSettings],
    ) -> None:
        self.held = held
        self.routes = routes
        self.suspects = suspects
        self.heart = heart
        self.desk = desk
        self.refuse = refuse
        self.settings = settings
        self.unknown: set[str] = set()
        # Set while there may be runs that have to be looked at.
        self.timed = asyncio.Event()

    def take(self, deliveries: list[Leased], lease: float) -> None:
        now = time.monotonic()
        renew_at, desk = now + lease / 3, self.desk
        queues, find = self.routes.queues, self.routes.table.get
        placed: dict[Executor, list[Run]] = {}
        plain = True
        for delivery in deliveries:
            name = queues[delivery.queue_id].name
            context = self.held[delivery.id] = Context(delivery, name, desk, lease, renew_at)
            if delivery.flags & Flag.OWN_LEASE:
                self.keep_own_lease(context, now)
                plain = False
            route = find((delivery.queue_id, delivery.type)) or find((delivery.queue_id, None))
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
                placed.setdefault(lane, []).append((handler, context))
        self.heart.watch(renew_at)
        self.heart.claimed(deliveries, lease, plain=plain)
        for lane, runs in placed.items():
            lane.put(runs)

    def keep_own_lease(self, context: Context, now: float) -> None:
        context.lease = context.delivery.meta.lease or context.lease
        context.renew_at = now + context.lease / 3
        self.heart.watch(context.renew_at)

    def park(self, context: Context) -> None:
        kind = context.delivery.type
        if kind not in self.unknown:
            self.unknown.add(kind)
            log.warning("unknown_task", type=kind, queue=context.queue, id=context.id)
        self.refuse(context, Park())

    def quarantine(self, lane: Executor, run: Run) -> None:
        context = run[1]
        delivery, settings = context.delivery, self.settings(context)
        if delivery.deliveries > lifecycle.compute_limits(delivery.meta, settings)[1]:
            self.refuse(context, Nack("delivered too often"))
        else:
            self.suspects.add((lane, run), alone=may_be_killer(delivery, settings))
