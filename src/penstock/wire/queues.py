"""Wire types of scopes, queues, schedules, workers, agents and statistics."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from penstock.model.fields import MAX_BATCH, MAX_WORD_LENGTH
from penstock.model.message import Moment
from penstock.model.queue import Missed, Queue, QueueState, Schedule
from penstock.model.settings import QueueSettings
from penstock.model.store_types import WorkerInfo
from penstock.model.structs import copy_fields
from penstock.rules.cron import list_ticks
from penstock.rules.masking import mask_draft
from penstock.wire.fields import Name, Time, Word, to_datetime, to_optional_datetime
from penstock.wire.publish import PublishRequest, make_publish_request

Preset = Literal["default", "scaiqueue", "relay", "codeq", "faststream", "queuectl"]
Settings = Annotated[
    dict[str, Any], Meta(description="Settings to change; nested settings are merged.")
]
Place = Literal["ready", "scheduled", "dead"]


class NewScope(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    display_name: Annotated[str, Meta(max_length=200)] | None = None
    description: Annotated[str, Meta(max_length=2_000)] | None = None


class DescribeScope(Struct, frozen=True, forbid_unknown_fields=True):
    """Texts for people. Those that are left out stay as they are."""

    display_name: Annotated[str, Meta(max_length=200)] | None = None
    description: Annotated[str, Meta(max_length=2_000)] | None = None


class ScopeState(Struct, frozen=True):
    """A namespace of queues. While it is paused, its queues deliver no messages. While it is
    archived, they do not accept any, either."""

    name: str
    paused: bool
    state: Literal["active", "paused", "archived"] = "active"
    display_name: str = ""
    description: str = ""


class Scopes(Struct, frozen=True, omit_defaults=True):
    scopes: list[ScopeState]
    cursor: str | None = None


class NewQueue(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue with the settings of a preset, overridden by `settings`."""

    name: Name
    preset: Preset = "default"
    settings: Settings = {}


class EnsureQueue(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a preset, overridden by `settings`."""

    preset: Preset = "default"
    settings: Settings = {}


class ChangeQueue(Struct, frozen=True, forbid_unknown_fields=True):
    settings: Settings


class RenameRequest(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name


class PurgeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Ends up to `limit` messages in these places as cancelled."""

    places: Annotated[list[Place], Meta(min_length=1, max_length=3)]
    limit: Annotated[int, Meta(ge=1, le=10_000)] = MAX_BATCH


class Purged(Struct, frozen=True):
    purged: int


class PruneRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Deletes up to `limit` finished messages that ended before `before`, the oldest first. Without
    `before`, all that have ended."""

    before: Time | None = None
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 1_000


class PruneResult(Struct, frozen=True):
    """`more` says that there are further messages to prune."""

    pruned: int
    more: bool


class QueueView(Struct, frozen=True):
    name: str
    scope: str
    state: QueueState
    system: bool
    settings: QueueSettings
    scope_paused: bool = False


class Queues(Struct, frozen=True, omit_defaults=True):
    queues: list[QueueView]
    cursor: str | None = None


class NewSchedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Publishes `message` exactly once at each tick of `cron`."""

    cron: Word
    message: PublishRequest = PublishRequest()
    timezone: Word = "UTC"
    missed: Missed = Missed.ONE
    paused: bool = False
    declared_in: Annotated[str, Meta(max_length=200)] = ""


class ScheduleView(Struct, frozen=True, omit_defaults=True):
    """`next` lists the next five ticks, unless the schedule is paused. `masked` says that fields of
    the message are hidden from this caller."""

    name: str
    queue: str
    cron: str
    timezone: str
    missed: Missed
    paused: bool
    message: PublishRequest
    next_at: Time | None = None
    last_at: Time | None = None
    declared_in: str = ""
    next: list[Time] = []
    masked: bool = False


class Schedules(Struct, frozen=True, omit_defaults=True):
    schedules: list[ScheduleView]
    cursor: str | None = None


class AgentView(Struct, frozen=True, omit_defaults=True):
    """`every` is the interval in seconds. `last_work_*` describe the last run with work to do, on
    any server. `error` is set if the last run on this server failed."""

    name: str
    every: float
    runs: int
    ran_ago: float | None = None
    runs_in: float | None = None
    last_work_at: Time | None = None
    last_work_by: str | None = None
    last_result: str | None = None
    error: str | None = None


class Agents(Struct, frozen=True):
    agents: list[AgentView]


class WorkerView(Struct, frozen=True):
    id: str
    host: str
    pid: int
    state: Literal["running", "stopping", "gone"]
    queues: list[str]
    started_at: Time
    seen_at: Time
    types: dict[str, list[str]]
    slots: int
    version: str
    # The scope of its queues.
    scope: str = "default"


class Workers(Struct, frozen=True):
    """`now` is the store's clock."""

    workers: list[WorkerView]
    now: Time


class WorkerHeartbeat(Struct, frozen=True, forbid_unknown_fields=True):
    """Registers a worker. Workers send it when they start and every 30 seconds."""

    host: Annotated[str, Meta(max_length=MAX_WORD_LENGTH)]
    pid: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    queues: Annotated[list[Name], Meta(max_length=MAX_BATCH)]
    types: Annotated[dict[Name, list[Word]], Meta(max_length=MAX_BATCH)] = {}
    slots: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    version: Annotated[str, Meta(max_length=MAX_WORD_LENGTH)] = ""
    scope: Name = "default"


class QueueCountsView(Struct, frozen=True):
    """Message counts of a queue. Counts of ended messages cover only the latest."""

    queue: str
    scope: str
    state: QueueState
    ready: int
    scheduled: int
    claimed: int
    dead: int
    completed: int
    failed: int
    expired: int
    cancelled: int


class Stats(Struct, frozen=True, omit_defaults=True):
    """Counts are cached to limit the load on the store. `counted_at` is their time.

    Ended messages are counted among the last `ended_counted`. `truncated` says that there are more.
    `totals` counts the messages of all queues by state, also of those on other pages.
    """

    queues: list[QueueCountsView]
    workers: int
    durability: str
    counted_at: Time
    cursor: str | None = None
    ended_counted: int = 0
    truncated: bool = False
    totals: dict[str, int] = {}


class AutoscaleView(Struct, frozen=True):
    """The number of workers that a queue needs, and the figures behind it."""

    queue: str
    scope: str
    workers: int
    ready: int
    claimed: int
    ended_per_second: float
    run_seconds: float


class AutoscaleList(Struct, frozen=True, omit_defaults=True):
    queues: list[AutoscaleView]
    cursor: str | None = None


class Health(Struct, frozen=True):
    status: Literal["ok"]


class Version(Struct, frozen=True):
    version: str
    api: str
    engine: str
    durability: str


def make_queue_view(queue: Queue) -> QueueView:
    return QueueView(
        name=queue.name,
        scope=queue.scope.name,
        state=queue.state,
        system=queue.system,
        settings=queue.settings,
        scope_paused=queue.scope.paused,
    )


def make_schedule_view(schedule: Schedule, queue: str, mask: Sequence[str]) -> ScheduleView:
    """`mask` are the fields that the caller may not see."""
    shown = mask_draft(schedule.draft, mask)
    return ScheduleView(
        name=schedule.name,
        queue=queue,
        cron=schedule.cron,
        timezone=schedule.timezone,
        missed=schedule.missed,
        paused=schedule.paused,
        message=make_publish_request(shown.draft),
        next_at=to_optional_datetime(schedule.next_at or None),
        last_at=to_optional_datetime(schedule.last_at),
        declared_in=schedule.declared_in,
        next=[to_datetime(tick) for tick in list_next(schedule)],
        masked=shown.changed,
    )


def list_next(schedule: Schedule) -> tuple[Moment, ...]:
    if schedule.paused or not schedule.next_at:
        return ()
    return list_ticks(schedule.cron, schedule.timezone, schedule.next_at)


def make_worker_view(row: WorkerInfo, state: Literal["running", "stopping", "gone"]) -> WorkerView:
    return copy_fields(
        WorkerView,
        row,
        state=state,
        queues=list(row.queues),
        started_at=to_datetime(row.started_at),
        seen_at=to_datetime(row.seen_at),
        types={queue: list(types) for queue, types in row.types.items()},
    )
