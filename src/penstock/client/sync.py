"""The synchronous client. Its calls run on a background event loop."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from penstock.client.admin import RemoteAdmin
from penstock.client.artifacts import RemoteArtifacts
from penstock.client.client import Client
from penstock.client.transport import REQUEST_TIMEOUT_S
from penstock.portal import Portal

P = ParamSpec("P")
R = TypeVar("R")
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


class SyncAdmin:
    """The synchronous `RemoteAdmin`."""

    def __init__(self, portal: Portal, admin: RemoteAdmin) -> None:
        self.portal = portal
        self.verbs = admin

    create_scope = make_sync(RemoteAdmin.create_scope)
    pause_scope = make_sync(RemoteAdmin.pause_scope)
    create_queue = make_sync(RemoteAdmin.create_queue)
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
    redrive = make_sync(RemoteAdmin.redrive)
    redrive_many = make_sync(RemoteAdmin.redrive_many)
    prune = make_sync(RemoteAdmin.prune)
    purge = make_sync(RemoteAdmin.purge)
    purge_dead = make_sync(RemoteAdmin.purge_dead)
    schedule = make_sync(RemoteAdmin.schedule)
    schedules = make_sync(RemoteAdmin.schedules)
    unschedule = make_sync(RemoteAdmin.unschedule)


class SyncArtifacts:
    """The synchronous `RemoteArtifacts`."""

    def __init__(self, portal: Portal, artifacts: RemoteArtifacts) -> None:
        self.portal = portal
        self.verbs = artifacts

    attach = make_sync(RemoteArtifacts.attach)
    list_artifacts = make_sync(RemoteArtifacts.list_artifacts)
    read = make_sync(RemoteArtifacts.read)
    download = make_sync(RemoteArtifacts.download)


class SyncClient:
    """The synchronous `Client`."""

    def __init__(
        self, url: str, *, key: str | None = None, timeout: float = REQUEST_TIMEOUT_S
    ) -> None:
        self.portal = Portal()
        self.verbs = Client(url, key=key, timeout=timeout)
        self.admin = SyncAdmin(self.portal, self.verbs.admin)
        self.artifacts = SyncArtifacts(self.portal, self.verbs.artifacts)

    publish = make_sync(Client.publish)
    publish_many = make_sync(Client.publish_many)
    claim = make_sync(Client.claim)
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
