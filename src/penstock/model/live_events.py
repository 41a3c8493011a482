"""Events without a history row, which every server reads for its listeners."""

from msgspec import Struct

from penstock.model.message import Moment


class Audience(Struct, frozen=True):
    """The audience of an event: people, roles, and readers of one of the queues."""

    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()


class LiveEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored event. Without an audience, readers of its queue see it."""

    kind: str
    at: Moment
    tenant: str
    scope: str
    queue: str = ""
    id: str | None = None
    type: str | None = None
    state: str | None = None
    reason: str | None = None
    correlation_id: str | None = None
    audience: Audience | None = None
