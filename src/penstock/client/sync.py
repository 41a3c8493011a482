"""The synchronous client. Its calls run on a background event loop."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from penstock.client.activity import RemoteActivity, RemoteFilters
from penstock.client.admin import RemoteAdmin
from penstock.client.artifacts import RemoteArtifacts
from penstock.client.broadcasts import RemoteBroadcasts
from penstock.client.bulk import RemoteBulk
from penstock.client.client import Client
from penstock.client.inbox import RemoteInbox
from penstock.client.metrics import RemoteAlerts, RemoteAnomalies, RemoteMetrics
from penstock.client.rules import RemoteRules
from penstock.client.schemas import RemoteSchemas
from penstock.client.scopes import RemoteScopes
from penstock.client.topology import RemoteTopology
from penstock.client.transport import REQUEST_TIMEOUT_S
from penstock.client.waiting import RemoteWaits
from penstock.client.workflows import RemoteWorkflows
from penstock.portal import Portal

P = ParamSpec("P")
R = TypeVar("R")
Verbs = TypeVar("Verbs")
Verbs_co = TypeVar("Verbs_co", covariant=True)


class SyncWaiter(Protocol[Verbs_co]):
    @property
    def portal(self) -> Portal: ...

    @property
    def verbs(self) -> Verbs_co: ...


def make_sync(
    verb: Callable[Concatenate[Verbs_co, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncWaiter[Verbs_co], P], R]:
    """Wraps an async method in one that blocks until it returns."""

    def call(self: SyncWaiter[Verbs_co], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.portal.run(verb(self.verbs, *args, **kwargs))

    call.__doc__ = verb.__doc__
    return call


class SyncGroup(Generic[Verbs]):
    """A group of operations, and the loop that runs them."""

    def __init__(self, portal: Portal, verbs: Verbs) -> None:
        self.portal = portal
        self.verbs = verbs


class SyncAdmin(SyncGroup[RemoteAdmin]):
    create_scope = make_sync(RemoteAdmin.create_scope)
    pause_scope = make_sync(RemoteAdmin.pause_scope)
    create_queue = make_sync(RemoteAdmin.create_queue)
    ensure_queue = make_sync(RemoteAdmin.ensure_queue)
    queue = make_sync(RemoteAdmin.queue)
    queues = make_sync(RemoteAdmin.queues)
    set_queue = make_sync(RemoteAdmin.set_queue)
    set_state = make_sync(RemoteAdmin.set_state)
    rename_queue = make_sync(RemoteAdmin.rename_queue)
    delete_queue = make_sync(RemoteAdmin.delete_queue)
    get = make_sync(RemoteAdmin.get)
    result = make_sync(RemoteAdmin.result)
    callbacks = make_sync(RemoteAdmin.callbacks)
    explain = make_sync(RemoteAdmin.explain)
    find = make_sync(RemoteAdmin.find)
    search = make_sync(RemoteAdmin.search)
    cancel = make_sync(RemoteAdmin.cancel)
    cancel_tree = make_sync(RemoteAdmin.cancel_tree)
    redrive = make_sync(RemoteAdmin.redrive)
    redrive_many = make_sync(RemoteAdmin.redrive_many)
    edit = make_sync(RemoteAdmin.edit)
    move = make_sync(RemoteAdmin.move)
    reprioritise = make_sync(RemoteAdmin.reprioritise)
    prune = make_sync(RemoteAdmin.prune)
    purge = make_sync(RemoteAdmin.purge)
    purge_dead = make_sync(RemoteAdmin.purge_dead)
    schedule = make_sync(RemoteAdmin.schedule)
    schedules = make_sync(RemoteAdmin.schedules)
    pause_schedule = make_sync(RemoteAdmin.pause_schedule)
    resume_schedule = make_sync(RemoteAdmin.resume_schedule)
    run_schedule = make_sync(RemoteAdmin.run_schedule)
    unschedule = make_sync(RemoteAdmin.unschedule)


class SyncActivity(SyncGroup[RemoteActivity]):
    find = make_sync(RemoteActivity.find)
    trace = make_sync(RemoteActivity.trace)


class SyncFilters(SyncGroup[RemoteFilters]):
    complete = make_sync(RemoteFilters.complete)


class SyncArtifacts(SyncGroup[RemoteArtifacts]):
    attach = make_sync(RemoteArtifacts.attach)
    list_artifacts = make_sync(RemoteArtifacts.list_artifacts)
    read = make_sync(RemoteArtifacts.read)
    download = make_sync(RemoteArtifacts.download)


class SyncBulk(SyncGroup[RemoteBulk]):
    start = make_sync(RemoteBulk.start)
    get = make_sync(RemoteBulk.get)
    list_actions = make_sync(RemoteBulk.list_actions)
    pause = make_sync(RemoteBulk.pause)
    resume = make_sync(RemoteBulk.resume)
    abort = make_sync(RemoteBulk.abort)


class SyncMetrics(SyncGroup[RemoteMetrics]):
    queue = make_sync(RemoteMetrics.queue)
    consumers = make_sync(RemoteMetrics.consumers)


class SyncAnomalies(SyncGroup[RemoteAnomalies]):
    list = make_sync(RemoteAnomalies.list)


class SyncAlerts(SyncGroup[RemoteAlerts]):
    add = make_sync(RemoteAlerts.add)
    list = make_sync(RemoteAlerts.list)
    get = make_sync(RemoteAlerts.get)
    delete = make_sync(RemoteAlerts.delete)
    test = make_sync(RemoteAlerts.test)


class SyncInbox(SyncGroup[RemoteInbox]):
    request = make_sync(RemoteInbox.request)
    list_steps = make_sync(RemoteInbox.list_steps)
    get = make_sync(RemoteInbox.get)
    decide = make_sync(RemoteInbox.decide)
    claim = make_sync(RemoteInbox.claim)
    release = make_sync(RemoteInbox.release)
    delegate = make_sync(RemoteInbox.delegate)
    comment = make_sync(RemoteInbox.comment)
    count = make_sync(RemoteInbox.count)
    save_pattern = make_sync(RemoteInbox.save_pattern)
    list_patterns = make_sync(RemoteInbox.list_patterns)
    delete_pattern = make_sync(RemoteInbox.delete_pattern)
    add_webhook = make_sync(RemoteInbox.add_webhook)
    list_webhooks = make_sync(RemoteInbox.list_webhooks)
    delete_webhook = make_sync(RemoteInbox.delete_webhook)


class SyncWorkflows(SyncGroup[RemoteWorkflows]):
    start = make_sync(RemoteWorkflows.start)
    list_summaries = make_sync(RemoteWorkflows.list_summaries)
    get = make_sync(RemoteWorkflows.get)
    cancel = make_sync(RemoteWorkflows.cancel)
    redrive = make_sync(RemoteWorkflows.redrive)


class SyncWaits(SyncGroup[RemoteWaits]):
    """The synchronous `RemoteWaits`, without what only runs on a store use."""

    steps = make_sync(RemoteWaits.steps)
    signal = make_sync(RemoteWaits.signal)
    redrive_from = make_sync(RemoteWaits.redrive_from)


class SyncRules(SyncGroup[RemoteRules]):
    save = make_sync(RemoteRules.save)
    list_rules = make_sync(RemoteRules.list_rules)
    get = make_sync(RemoteRules.get)
    versions = make_sync(RemoteRules.versions)
    enable = make_sync(RemoteRules.enable)
    delete = make_sync(RemoteRules.delete)
    test = make_sync(RemoteRules.test)
    coverage = make_sync(RemoteRules.coverage)


class SyncSchemas(SyncGroup[RemoteSchemas]):
    add = make_sync(RemoteSchemas.add)
    check = make_sync(RemoteSchemas.check)
    list_schemas = make_sync(RemoteSchemas.list_schemas)
    get = make_sync(RemoteSchemas.get)
    delete = make_sync(RemoteSchemas.delete)
    bind = make_sync(RemoteSchemas.bind)
    unbind = make_sync(RemoteSchemas.unbind)
    list_bindings = make_sync(RemoteSchemas.list_bindings)
    draft = make_sync(RemoteSchemas.draft)


class SyncScopes(SyncGroup[RemoteScopes]):
    ensure = make_sync(RemoteScopes.ensure)
    get = make_sync(RemoteScopes.get)
    list_scopes = make_sync(RemoteScopes.list_scopes)
    archive = make_sync(RemoteScopes.archive)
    unarchive = make_sync(RemoteScopes.unarchive)


class SyncBroadcasts(SyncGroup[RemoteBroadcasts]):
    subscribe = make_sync(RemoteBroadcasts.subscribe)
    list_subscriptions = make_sync(RemoteBroadcasts.list_subscriptions)
    get = make_sync(RemoteBroadcasts.get)
    unsubscribe = make_sync(RemoteBroadcasts.unsubscribe)


class SyncTopology(SyncGroup[RemoteTopology]):
    plan = make_sync(RemoteTopology.plan)
    apply = make_sync(RemoteTopology.apply)
    export = make_sync(RemoteTopology.export)


class SyncClient:
    """The synchronous `Client`."""

    def __init__(
        self, url: str, *, key: str | None = None, timeout: float = REQUEST_TIMEOUT_S
    ) -> None:
        self.portal = Portal()
        self.verbs = Client(url, key=key, timeout=timeout)
        self.admin = SyncAdmin(self.portal, self.verbs.admin)
        self.activity = SyncActivity(self.portal, self.verbs.activity)
        self.filters = SyncFilters(self.portal, self.verbs.filters)
        self.artifacts = SyncArtifacts(self.portal, self.verbs.artifacts)
        self.bulk = SyncBulk(self.portal, self.verbs.bulk)
        self.metrics = SyncMetrics(self.portal, self.verbs.metrics)
        self.anomalies = SyncAnomalies(self.portal, self.verbs.anomalies)
        self.alerts = SyncAlerts(self.portal, self.verbs.alerts)
        self.inbox = SyncInbox(self.portal, self.verbs.inbox)
        self.workflows = SyncWorkflows(self.portal, self.verbs.workflows)
        self.waits = SyncWaits(self.portal, self.verbs.waits)
        self.rules = SyncRules(self.portal, self.verbs.rules)
        self.broadcasts = SyncBroadcasts(self.portal, self.verbs.broadcasts)
        self.schemas = SyncSchemas(self.portal, self.verbs.schemas)
        self.scopes = SyncScopes(self.portal, self.verbs.scopes)
        self.topology = SyncTopology(self.portal, self.verbs.topology)

    publish = make_sync(Client.publish)
    publish_many = make_sync(Client.publish_many)
    claim = make_sync(Client.claim)
    seen = make_sync(Client.seen)
    complete = make_sync(Client.complete)
    complete_many = make_sync(Client.complete_many)
    settle = make_sync(Client.settle)
    settle_many = make_sync(Client.settle_many)
    extend = make_sync(Client.extend)
    extend_many = make_sync(Client.extend_many)
    begin = make_sync(Client.begin)
    progress = make_sync(Client.progress)
    mark_many = make_sync(Client.mark_many)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self.portal.open:
            self.portal.run(self.verbs.close())
            self.portal.close()
