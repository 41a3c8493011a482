"""The state that all requests of a server share: brokers, long polls, event hub, metrics.

`run_service` opens the store and runs the agents, for `penstock serve` and for a mounted app alike.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from msgspec import Struct

from penstock import stores
from penstock.agents import make_agents
from penstock.agents.alert_sender import AlertSender
from penstock.agents.bulk_runner import BulkRunner
from penstock.agents.callback_dispatcher import CallbackDispatcher
from penstock.agents.human_notifier import HumanNotifier
from penstock.agents.subscription_notifier import SubscriptionNotifier
from penstock.artifacts.rules import MAX_FILE_BYTES, make_limits
from penstock.artifacts.service import ArtifactService
from penstock.artifacts.storage import default_location, open_storage
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.broker.webhook_secrets import WebhookSecrets
from penstock.errors import NotFound
from penstock.http.auth.authenticate import Authenticator, OpenAuthenticator
from penstock.http.auth.denials import DenialLog
from penstock.http.auth.identity import TrustedIssuers
from penstock.http.auth.principal import OWNER
from penstock.http.auth.rate_limit import RateLimiter
from penstock.http.auth.trusted_proxies import TrustedProxies
from penstock.http.cors import CorsPolicy
from penstock.http.dashboard.answers import CauseCache, EncodedAnswers
from penstock.http.dashboard.last_hour import LastHour
from penstock.http.dashboard.live_figures import LiveFigures
from penstock.http.events.anomaly_watcher import AnomalyWatcher
from penstock.http.events.audit_tail import AuditTail
from penstock.http.events.bulk_tail import BulkTail
from penstock.http.events.hub import EncodedEvent, Event, EventKeepalive, Hub
from penstock.http.events.lease_watcher import LeaseWatcher
from penstock.http.events.tail import HistoryTail
from penstock.http.events.wait_tail import WaitTail
from penstock.http.lake_jobs import LakeJobs
from penstock.http.lock_tokens import Tokens
from penstock.http.long_poll import LongPoller
from penstock.http.metrics.autoscale import QueueRates, estimate_run_time
from penstock.http.metrics.prometheus import Depths, LagWatch, Metrics, watch_pool
from penstock.http.metrics.queue_stats import QueueCounts, QueueStatsSampler
from penstock.http.quotas import Quota
from penstock.model.message import HistoryRow, Verb
from penstock.outage import Outages
from penstock.rules.human_links import HumanLinks
from penstock.runner import Agent, Runner, make_identity
from penstock.store import Store
from penstock.stores.pool import ConnectionPool
from penstock.webhooks.egress import EgressPolicy
from penstock.webhooks.sender import WebhookSender

MAX_EVENT_STREAMS = 2_000
# Unfinished uploads have as many bytes as this many of the largest files, and at least a GiB.
MAX_UNFINISHED_FILES = 20
MIN_UNFINISHED_BYTES = 1 << 30


class ServerLimits(Struct, frozen=True):
    """Requests beyond these limits are refused."""

    body: int = 32 * 1_048_576
    # Seconds until the head of a request is complete. Only `penstock serve` enforces it.
    head_timeout: float = 15.0
    # Seconds a client may stall while it sends a body or reads an answer.
    body_timeout: float = 30.0
    waiting: int = 20_000
    allow_shell: bool = False
    # Where callbacks and webhooks may be sent.
    reach: EgressPolicy = EgressPolicy()
    # Where clients reach this service, which notices of work mention.
    public_url: str = ""


class ServerState:
    def __init__(
        self,
        store: Store,
        secret: bytes,
        limits: ServerLimits,
        *,
        artifact_service: ArtifactService | None = None,
        authenticator: Authenticator | OpenAuthenticator | None = None,
        proxies: TrustedProxies | None = None,
        cors: CorsPolicy | None = None,
        agents: bool = True,
    ) -> None:
        self.store = store
        self.artifact_service = artifact_service
        self.authenticator = authenticator or OpenAuthenticator()
        self.proxies = proxies
        self.cors = cors
        self.denial_log = DenialLog(store, self.flush_denials)
        self.limits = limits
        self.tokens = Tokens(secret)
        self.brokers: dict[str, Broker] = {}
        self.outages = Outages()
        self.make_quotas()
        self.long_poller = LongPoller()
        self.hub = Hub()
        self.metrics = Metrics()
        self.counts = QueueCounts(store)
        self.queue_rates = QueueRates(store)
        # Shared by the brokers of all tenants.
        self.directory = QueueCache(store)
        self.make_webhooks()
        self.make_followers()
        self.runner = Runner(
            self.make_all_agents() if agents else self.make_local_agents(),
            self.send_agent_event,
            self.outages,
        )
        self.hub.wake_agents = self.figures.wake = self.runner.wake_dormant
        self.measure()

    def make_webhooks(self) -> None:
        self.signing = WebhookSecrets(self.store)
        self.sender = WebhookSender(self.limits.reach)
        self.callbacks = CallbackDispatcher(
            self.store, self.directory, self.sender, make_identity(), self.artifact_service
        )
        self.subscription_notifier = SubscriptionNotifier(
            self.store, self.directory, self.sender, self.count_ready, self.limits.public_url
        )
        self.subscribers = self.subscription_notifier.subscribers
        self.alerts = AlertSender(self.store, self.directory, self.sender)
        self.human_notifier = HumanNotifier(
            self.store,
            self.directory,
            self.sender,
            HumanLinks(self.tokens.secret),
            self.limits.public_url,
        )

    def make_followers(self) -> None:
        self.figures = LiveFigures(self.store, self.directory, self.counts)
        self.last_hour = LastHour()
        self.overviews = EncodedAnswers()
        self.causes = CauseCache()
        self.lake_jobs = LakeJobs()
        self.environment = ""
        events = (self.store, self.directory, self.hub, self.outages)
        self.lease_watcher = LeaseWatcher(*events)
        self.wait_follower = WaitTail(*events)
        self.history_tail = HistoryTail(*events, self.lease_watcher, self.wait_follower)
        self.bulk_follower = BulkTail(self.store, self.directory, self.hub)

    def make_quotas(self) -> None:
        # Workers by tenant when they were last counted. Their heartbeats are not counted again.
        self.counted_workers: dict[str, set[str]] = {}
        self.registration = asyncio.Lock()
        shared, largest = (
            self.authenticator.asks,
            0 if self.artifact_service is None else self.artifact_service.limits.size,
        )
        unfinished = max(MIN_UNFINISHED_BYTES, MAX_UNFINISHED_FILES * largest)
        self.waiting_claims = Quota("waiting claims", self.limits.waiting, shared=shared)
        self.event_streams = Quota("event streams", MAX_EVENT_STREAMS, shared=shared)
        self.secret_urls = RateLimiter()
        self.unfinished_uploads = Quota("bytes of unfinished uploads", unfinished, shared=shared)

    def measure(self) -> None:
        """Registers the gauges that are read when metrics are scraped."""
        self.metrics.registry.register(Depths(self.counts, self.directory, self.metrics))
        database = getattr(self.store, "database", None)
        if isinstance(pool := getattr(database, "pool", None), ConnectionPool):
            watch_pool(self.metrics, pool)
        self.metrics.watch(
            "penstock_waiting_claims",
            "Claims waiting in long polls.",
            lambda: float(self.long_poller.waiting),
        )
        self.metrics.watch(
            "penstock_listeners", "Open event streams.", lambda: float(len(self.hub.listeners))
        )

    def make_all_agents(self) -> list[Agent]:
        upkeep = make_agents(
            self.store,
            make_identity(),
            directory=self.directory,
            artifact_service=self.artifact_service,
        )
        sending = (self.callbacks, self.subscription_notifier, self.alerts, self.human_notifier)
        return [*upkeep, *sending, *self.make_local_agents()]

    def make_local_agents(self) -> list[Agent]:
        """Agents that serve only this process."""
        return [
            self.history_tail,
            self.bulk_follower,
            self.lease_watcher,
            self.wait_follower,
            self.denial_log,
            AnomalyWatcher(self.store, self.directory, self.hub),
            AuditTail(self.store, self.hub),
            self.figures,
            QueueStatsSampler(self.counts, self.queue_rates, self.observe_run),
            EventKeepalive(self.hub),
            LagWatch(self.metrics, time.monotonic),
        ]

    async def count_ready(self, queue_id: int) -> int:
        return (await self.counts.get_snapshot()).depths.get((queue_id, "ready"), 0)

    def observe_run(self, row: HistoryRow) -> None:
        """Counts how long a sampled message ran, or that its lease was lost."""
        queue = self.directory.by_id.get(row.queue_id)
        if queue is None:
            return
        name = self.metrics.queue(queue.name)
        if row.verb is Verb.RECLAIM:
            self.metrics.lost.add(name)
        elif (run := estimate_run_time(row)) is not None:
            self.metrics.runs.add(name, run)

    def get_broker(self, tenant: str) -> Broker:
        if tenant not in self.brokers:
            self.brokers[tenant] = Broker(
                self.store,
                tenant=tenant,
                artifact_service=self.artifact_service,
                outages=self.outages,
                directory=self.directory,
            )
        return self.brokers[tenant]

    def wake_tail(self) -> None:
        """Sends new events to listeners now, instead of at the next tick."""
        if self.hub.wanted:
            self.runner.nudge(self.history_tail.name)

    def send_agent_event(self, name: str, error: str | None) -> None:
        """Sends an event to listeners of the tenant that owns the store."""
        kind = "agent.recovered" if error is None else "agent.failed"
        event = Event(kind, datetime.now(UTC), "", "", type=name, error=error)
        self.hub.send((EncodedEvent(event, OWNER),))

    def wake_bulk_runner(self) -> None:
        """Runs a new bulk action at once, if this server runs agents."""
        with suppress(NotFound):
            self.runner.nudge(BulkRunner.name)

    def nudge_alerts(self) -> None:
        """Sends due alerts now, if this server sends any."""
        if any(each.agent is self.alerts for each in self.runner.turns):
            self.runner.nudge(self.alerts.name)

    def flush_denials(self) -> None:
        self.runner.nudge(self.denial_log.name)

    def close(self) -> None:
        """Answers waiting claims with no messages, and ends event streams."""
        self.long_poller.close()
        self.hub.close()
        self.figures.close()
        self.lake_jobs.close()


class ServiceOptions(Struct, frozen=True, kw_only=True):
    url: str
    limits: ServerLimits = ServerLimits()
    # A directory or a bucket; None is beside the store.
    artifacts: str | None = None
    max_artifact: int = MAX_FILE_BYTES
    # The lake of the pipeline that people start on a page. None disables that.
    lake: str | None = None
    # None asks for no credentials, and serves this machine only.
    trusted_issuers: TrustedIssuers | None = None
    # Addresses and networks of reverse proxies whose X-Forwarded-For is trusted.
    trusted_proxies: tuple[str, ...] = ()
    # Origins of web pages that may call the service from a browser.
    cors_origins: tuple[str, ...] = ()
    # Shown on every page of the dashboard, such as production.
    environment: str = ""


@asynccontextmanager
async def run_service(options: ServiceOptions) -> AsyncIterator[ServerState]:
    trusted = options.trusted_issuers
    async with await stores.open(options.url) as store:
        secret = await store.secret()
        origins = options.cors_origins
        place = open_storage(options.artifacts or default_location(options.url), secret)
        service = ServerState(
            store,
            secret,
            options.limits,
            artifact_service=ArtifactService(place, make_limits(options.max_artifact)),
            authenticator=(
                OpenAuthenticator(origins) if trusted is None else Authenticator(store, trusted)
            ),
            cors=CorsPolicy(origins) if origins else None,
            proxies=TrustedProxies(options.trusted_proxies) if options.trusted_proxies else None,
        )
        service.lake_jobs = LakeJobs(options.url, options.lake)
        service.environment = options.environment
        async with service.sender, service.callbacks, service.subscription_notifier, service.runner:
            yield service
