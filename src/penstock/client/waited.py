"""The same verbs for callers without a loop: each waits on one background loop."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from penstock.client.administration import RemoteAdmin
from penstock.client.artifacts import RemoteArtifacts
from penstock.client.remote import Client
from penstock.client.transport import PATIENCE
from penstock.portal import Portal

P = ParamSpec("P")
R = TypeVar("R")
Verbs_co = TypeVar("Verbs_co", covariant=True)


class Waiting(Protocol[Verbs_co]):
    @property
    def portal(self) -> Portal: ...

    @property
    def verbs(self) -> Verbs_co: ...


def waited(
    verb: Callable[Concatenate[Verbs_co, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Waiting[Verbs_co], P], R]:
    """The verb, for whoever waits for it."""

    def call(self: Waiting[Verbs_co], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.portal.run(verb(self.verbs, *args, **kwargs))

    call.__doc__ = verb.__doc__
    return call


class SyncAdmin:
    """`RemoteAdmin`, waited for."""

    def __init__(self, portal: Portal, admin: RemoteAdmin) -> None:
        self.portal = portal
        self.verbs = admin

    create_scope = waited(RemoteAdmin.create_scope)
    pause_scope = waited(RemoteAdmin.pause_scope)
    create_queue = waited(RemoteAdmin.create_queue)
    queue = waited(RemoteAdmin.queue)
    queues = waited(RemoteAdmin.queues)
    set_queue = waited(RemoteAdmin.set_queue)
    set_state = waited(RemoteAdmin.set_state)
    rename_queue = waited(RemoteAdmin.rename_queue)
    delete_queue = waited(RemoteAdmin.delete_queue)
    get = waited(RemoteAdmin.get)
    result = waited(RemoteAdmin.result)
    callbacks = waited(RemoteAdmin.callbacks)
    find = waited(RemoteAdmin.find)
    cancel = waited(RemoteAdmin.cancel)
    redrive = waited(RemoteAdmin.redrive)
    redrive_many = waited(RemoteAdmin.redrive_many)
    purge = waited(RemoteAdmin.purge)
    purge_dead = waited(RemoteAdmin.purge_dead)
    schedule = waited(RemoteAdmin.schedule)
    schedules = waited(RemoteAdmin.schedules)
    unschedule = waited(RemoteAdmin.unschedule)


class SyncArtifacts:
    """`RemoteArtifacts`, waited for."""

    def __init__(self, portal: Portal, artifacts: RemoteArtifacts) -> None:
        self.portal = portal
        self.verbs = artifacts

    attach = waited(RemoteArtifacts.attach)
    of = waited(RemoteArtifacts.of)
    read = waited(RemoteArtifacts.read)
    download = waited(RemoteArtifacts.download)


class SyncClient:
    """`Client`, waited for."""

    def __init__(self, url: str, *, key: str | None = None, patience: float = PATIENCE) -> None:
        self.portal = Portal()
        self.verbs = Client(url, key=key, patience=patience)
        self.admin = SyncAdmin(self.portal, self.verbs.admin)
        self.artifacts = SyncArtifacts(self.portal, self.verbs.artifacts)

    publish = waited(Client.publish)
    publish_many = waited(Client.publish_many)
    claim = waited(Client.claim)
    complete = waited(Client.complete)
    complete_many = waited(Client.complete_many)
    settle = waited(Client.settle)
    settle_many = waited(Client.settle_many)
    extend = waited(Client.extend)
    extend_many = waited(Client.extend_many)
    begin = waited(Client.begin)
    progress = waited(Client.progress)
    mark = waited(Client.mark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self.portal.open:
            self.portal.run(self.verbs.close())
            self.portal.close()
