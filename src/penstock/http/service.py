"""What every request needs: the brokers, the tokens, who waits, who listens, what is counted."""

import time

from msgspec import Struct

from penstock.agents import all_agents
from penstock.broker import Broker
from penstock.http.counts import Counts, Paces, Snapshotter
from penstock.http.events import Hub
from penstock.http.follower import Follower
from penstock.http.metrics import Depths, LagWatch, Metrics
from penstock.http.parking import Parking
from penstock.http.tokens import Tokens
from penstock.runner import Agent, Runner, identity
from penstock.store import Store


class Limits(Struct, frozen=True):
    """Past these a request is refused."""

    body: int = 32 * 1_048_576
    # Seconds for a body that comes in pieces.
    patience: float = 60.0
    waiting: int = 20_000
    allow_shell: bool = False


class Service:
    def __init__(self, store: Store, secret: bytes, limits: Limits, *, agents: bool = True) -> None:
        self.store = store
        self.limits = limits
        self.tokens = Tokens(secret)
        self.brokers: dict[str, Broker] = {}
        self.parking = Parking(limits.waiting)
        self.hub = Hub()
        self.metrics = Metrics()
        self.counts = Counts(store)
        self.paces = Paces(store)
        broker = self.broker("default")
        self.follower = Follower(store, broker.directory, self.hub)
        self.runner = Runner(self.own_agents(broker) if agents else self.watchers())
        self.metrics.registry.register(Depths(self.counts, broker.directory, self.metrics))
        self.metrics.watch(
            "penstock_waiting_claims", "Long polls.", lambda: float(self.parking.waiting)
        )
        self.metrics.watch(
            "penstock_listeners", "Event streams.", lambda: float(len(self.hub.listeners))
        )

    def own_agents(self, broker: Broker) -> list[Agent]:
        return [*all_agents(self.store, broker.directory, identity()), *self.watchers()]

    def watchers(self) -> list[Agent]:
        """What a server does for itself alone."""
        return [
            self.follower,
            Snapshotter(self.counts, self.paces, self.ran),
            LagWatch(self.metrics, time.monotonic),
        ]

    def ran(self, queue_id: int, seconds: float) -> None:
        queue = self.follower.directory.by_id.get(queue_id)
        if queue is not None:
            self.metrics.runs.labels(self.metrics.queue(queue.name)).observe(seconds)

    def broker(self, tenant: str) -> Broker:
        if tenant not in self.brokers:
            self.brokers[tenant] = Broker(self.store, tenant=tenant)
        return self.brokers[tenant]

    def nudge(self) -> None:
        """Whoever listens hears of what was just done."""
        if self.hub.wanted:
            self.runner.nudge(self.follower.name)

    def close(self) -> None:
        """Nobody waits any more."""
        self.parking.close()
        self.hub.close()
