"""Bulk actions: one operation on many messages, as a stored object."""

from enum import StrEnum

from msgspec import Struct

from penstock.model.changes import Horizon
from penstock.model.message import NEVER, Moment


class BulkVerb(StrEnum):
    REDRIVE = "redrive"
    CANCEL = "cancel"
    PURGE = "purge"
    MOVE = "move"
    REPRIORITISE = "reprioritise"


class BulkState(StrEnum):
    # A dry run that is too long to be answered at once.
    COUNTING = "counting"
    RUNNING = "running"
    PAUSED = "paused"
    ABORTED = "aborted"
    DONE = "done"
    FAILED = "failed"

    @property
    def active(self) -> bool:
        return self in (BulkState.COUNTING, BulkState.RUNNING, BulkState.PAUSED)


class BulkRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The request of a bulk action. It has a filter or ids."""

    verb: BulkVerb
    filter: str | None = None
    ids: tuple[int, ...] | None = None
    # The queue that messages are moved to, and its scope; by default that of the action.
    queue: str | None = None
    to_scope: str | None = None
    priority: int | None = None
    # Messages a second.
    rate: float | None = None
    dry_run: bool = False
    name: str | None = None


class BulkActor(Struct, frozen=True, omit_defaults=True):
    """The caller whose rights an action has. Without grants, it may do everything."""

    subject: str = "local"
    # The rights of an API key are read again for every batch.
    key: str | None = None
    grants: tuple[str, ...] | None = None
    scopes: tuple[str, ...] = ("*",)
    # When the token with these grants expires.
    until: Moment = NEVER


class BulkFailure(Struct, frozen=True):
    id: int
    code: str


class BulkCounts(Struct, frozen=True, omit_defaults=True):
    """Counts of messages by outcome, and the first failures."""

    done: int = 0
    skipped: dict[str, int] = {}
    failed: int = 0
    failures: tuple[BulkFailure, ...] = ()

    @property
    def matched(self) -> int:
        return self.done + sum(self.skipped.values()) + self.failed


class BulkAction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bulk action. `id` is a number of its tenant.

    It covers messages up to `as_of` that have not changed since. A dry run counts what it
    would do as done.
    """

    id: int
    tenant: str
    scope: str
    request: BulkRequest
    actor: BulkActor
    as_of: Horizon
    state: BulkState
    reason: str | None = None
    counts: BulkCounts = BulkCounts()
    created_at: Moment
    updated_at: Moment
    ended_at: Moment | None = None
    # Where its search goes on; for ids, how many are done.
    cursor: str | None = None
    position: int = 0
    # A pass looks at everything once. Of the current one: what was done, and what was locked.
    passes: int = 1
    pass_over: bool = False
    pass_done: int = 0
    busy: tuple[int, ...] = ()
    was_busy: tuple[int, ...] = ()
    # Messages of the last batch, whose answers are in the document of outcomes.
    batch: tuple[int, ...] = ()
    # Queues that its filter covers. It is paused when the caller loses its right on one.
    covers: tuple[int, ...] = ()
    # The process that works on it.
    owner: str = ""
    owned_until: Moment = 0

    @property
    def title(self) -> str:
        """The verb, and whether it only counts."""
        return f"{self.request.verb} (dry run)" if self.request.dry_run else self.request.verb

    @property
    def mark(self) -> str:
        """Names the action in history."""
        return f"bulk:{self.id}"
