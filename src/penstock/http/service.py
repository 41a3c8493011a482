"""What every request needs: the brokers, the tokens, who waits, who listens, what is counted."""

import time
from datetime import UTC, datetime

from msgspec import Struct

from penstock.agents import all_agents
from penstock.artifacts.verbs import Room
from penstock.broker import Broker
from penstock.http.callbacks import CallbackDispatcher
from penstock.http.caller import OWNER
from penstock.http.counts import Counts, Paces, Snapshotter, run_of
from penstock.http.events import Event, Hub, Pulse, Told
from penstock.http.follower import Follower
from penstock.http.gate import Gate, OpenGate
from penstock.http.guard import Reach
from penstock.http.metrics import Depths, LagWatch, Metrics, watch_pool
from penstock.http.notices import NoticeSender
from penstock.http.parking import Parking
from penstock.http.refusals import Refusals
from penstock.http.sending import Sender
from penstock.http.tokens import Tokens
from penstock.http.trusted_proxies import TrustedProxies
from penstock.message import HistoryRow, Verb
from penstock.outage import Outages
from penstock.runner import Agent, Runner, identity
from penstock.signing import Signing
from penstock.store import Store
from penstock.stores.pool import Pool


class Limits(Struct, frozen=True):
    """Past these a request is refused."""

    body: int = 32 * 1_048_576
    # Seconds from the connection, or from the first byte of a later request, to a whole head.
    head_timeout: float = 15.0
    # Seconds a client may send nothing of a body, or read nothing of an answer.
    body_timeout: float = 30.0
    waiting: int = 20_000
    allow_shell: bool = False
    # Of callbacks and notices.
    reach: Reach = Reach()


class Service:
    def __init__(
        self,
        store: Store,
        secret: bytes,
        limits: Limits,
        *,
        room: Room | None = None,
        gate: Gate | OpenGate | None = None,
        proxies: TrustedProxies | None = None,
        agents: bool = True,
    ) -> None:
        self.store = store
        self.room = room
        self.gate = gate or OpenGate()
        self.proxies = proxies
        self.refusals = Refusals(store, self.nudge_refusals)
        self.limits = limits
        self.tokens = Tokens(secret)
        self.brokers: dict[str, Broker] = {}
        # Row ids of workers that were here before.
        self.workers_seen: set[str] = set()
        self.outages = Outages()
        self.parking = Parking(limits.waiting)
        self.hub = Hub()
        self.metrics = Metrics()
        self.counts = Counts(store)
        self.paces = Paces(store)
        broker = self.broker("default")
        self.signing = Signing(store)
        self.sender = Sender(limits.reach)
        self.callbacks = CallbackDispatcher(broker, self.sender, identity())
        self.notices = NoticeSender(store, broker.directory, self.sender)
        self.subscribers = self.notices.subscribers
        self.follower = Follower(store, broker.directory, self.hub, self.outages)
        self.runner = Runner(
            self.own_agents(broker) if agents else self.watchers(),
            self.tell_of_agent,
            self.outages,
        )
        self.measure(broker)

    def measure(self, broker: Broker) -> None:
        """What is read when it is scraped."""
        self.metrics.registry.register(Depths(self.counts, broker.directory, self.metrics))
        if isinstance(pool := getattr(self.store, "pool", None), Pool):
            watch_pool(self.metrics, pool)
        self.metrics.watch(
            "penstock_waiting_claims", "Long polls.", lambda: float(self.parking.waiting)
        )
        self.metrics.watch(
            "penstock_listeners", "Event streams.", lambda: float(len(self.hub.listeners))
        )

    def own_agents(self, broker: Broker) -> list[Agent]:
        upkeep = all_agents(self.store, broker.directory, identity(), self.room)
        return [*upkeep, self.callbacks, self.notices, *self.watchers()]

    def watchers(self) -> list[Agent]:
        """What a server does for itself alone."""
        return [
            self.follower,
            self.refusals,
            Snapshotter(self.counts, self.paces, self.told),
            Pulse(self.hub),
            LagWatch(self.metrics, time.monotonic),
        ]

    def told(self, row: HistoryRow) -> None:
        """Of a sample: how long it ran, or that its lease was lost."""
        queue = self.follower.directory.by_id.get(row.queue_id)
        if queue is None:
            return
        name = self.metrics.queue(queue.name)
        if row.verb is Verb.RECLAIM:
            self.metrics.lost.add(name)
        elif (run := run_of(row)) is not None:
            self.metrics.runs.add(name, run)

    def broker(self, tenant: str) -> Broker:
        if tenant not in self.brokers:
            self.brokers[tenant] = Broker(
                self.store, tenant=tenant, room=self.room, outages=self.outages
            )
        return self.brokers[tenant]

    def nudge(self) -> None:
        """Whoever listens hears of what was just done."""
        if self.hub.wanted:
            self.runner.nudge(self.follower.name)

    def tell_of_agent(self, name: str, error: str | None) -> None:
        """The owner of the store hears of it."""
        kind = "agent.recovered" if error is None else "agent.failed"
        event = Event(kind, datetime.now(UTC), "", "", type=name, error=error)
        self.hub.tell((Told(event, OWNER),))

    def nudge_refusals(self) -> None:
        self.runner.nudge(self.refusals.name)

    def close(self) -> None:
        """Nobody waits any more."""
        self.parking.close()
        self.hub.close()
