"""Scopes, queues and cron schedules."""

from enum import StrEnum

from msgspec import Struct

from penstock.model.message import Draft, Moment
from penstock.model.settings import Backoff, QueueSettings

# Matches all queues, all scopes or all rights.
EVERY = "*"
DEAD_LETTER = "_dead_letter"
# The queue of pending callbacks, in the default scope of the default tenant.
CALLBACK = "_callback"
CALLBACK_SETTINGS = QueueSettings(
    ordering="fifo",
    max_attempts=12,
    backoff=Backoff(initial=1, factor=2, max=300, jitter="add:0.2"),
    lease=60.0,
)
# The queue of steps that wait for a person's decision. A scope gets it with its first step.
HUMAN = "_human"
HUMAN_SETTINGS = QueueSettings(
    ordering="fifo", max_attempts=1, retention=90 * 86_400.0, keep_results=90 * 86_400.0
)


class QueueState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DRAINING = "draining"
    ARCHIVED = "archived"
    DELETED = "deleted"


class Scope(Struct, frozen=True):
    """A namespace of queues, owned by a tenant. An archived one counts as paused, too."""

    id: int
    tenant: str
    name: str
    paused: bool = False
    # The queue cache derives it from the profile of the scope.
    archived: bool = False


class ScopeProfile(Struct, frozen=True, kw_only=True):
    """The description of a scope, and whether it is archived. Stored as a document."""

    display_name: str = ""
    description: str = ""
    archived: bool = False


# The kind of these documents.
SCOPE = "scope"


class Queue(Struct, frozen=True):
    id: int
    scope: Scope
    name: str
    state: QueueState = QueueState.ACTIVE
    settings: QueueSettings = QueueSettings()
    # True if schemas apply to what is published to it. The queue cache derives it.
    governed: bool = False

    @property
    def serves(self) -> bool:
        """True if its messages can be claimed."""
        serving = self.state in (QueueState.ACTIVE, QueueState.DRAINING)
        return serving and not self.scope.paused

    @property
    def serving_state(self) -> QueueState:
        """The state that claims see: paused or archived while the scope is."""
        if self.scope.archived:
            return QueueState.ARCHIVED
        if self.scope.paused and self.state in (QueueState.ACTIVE, QueueState.DRAINING):
            return QueueState.PAUSED
        return self.state

    @property
    def system(self) -> bool:
        return self.name.startswith("_")


class Missed(StrEnum):
    """The policy for ticks that passed while no scheduler was running."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class Schedule(Struct, frozen=True):
    """Publishes `draft` at each tick of `cron`, exactly one message per tick."""

    name: str
    cron: str
    draft: Draft
    timezone: str = "UTC"
    missed: Missed = Missed.ONE
    paused: bool = False
    id: int = 0
    queue_id: int = 0
    next_at: Moment = 0
    last_at: Moment | None = None
    # The module whose code declares it; empty for one that an operator made.
    declared_in: str = ""
