"""Scopes, queues, schedules, and how a store and its helpers are doing."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from penstock.model.queue import Missed, Queue, QueueState, Schedule
from penstock.model.settings import QueueSettings
from penstock.model.store_types import WorkerInfo
from penstock.wire.fields import Name, Time, Word, to_datetime, to_optional_datetime
from penstock.wire.publish import PublishRequest, make_publish_request

Preset = Literal["default", "scaiqueue", "relay", "codeq", "faststream", "queuectl"]
Settings = Annotated[
    dict[str, Any], Meta(description="Only those to change; nested ones are laid over.")
]
Place = Literal["ready", "scheduled", "dead"]


class NewScope(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name


class ScopeState(Struct, frozen=True):
    """A namespace of queues. While it is paused none of them hands out messages."""

    name: str
    paused: bool


class Scopes(Struct, frozen=True):
    scopes: list[ScopeState]


class NewQueue(Struct, frozen=True, forbid_unknown_fields=True):
    """A preset, and what differs from it."""

    name: Name
    preset: Preset = "default"
    settings: Settings = {}


class ChangeQueue(Struct, frozen=True, forbid_unknown_fields=True):
    settings: Settings


class Rename(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name


class Purge(Struct, frozen=True, forbid_unknown_fields=True):
    """Ends up to `limit` messages of these places as cancelled."""

    places: Annotated[list[Place], Meta(min_length=1, max_length=3)]
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class Purged(Struct, frozen=True):
    purged: int


class QueueView(Struct, frozen=True):
    name: str
    scope: str
    state: QueueState
    system: bool
    settings: QueueSettings


class Queues(Struct, frozen=True):
    queues: list[QueueView]


class NewSchedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Publishes `message` at each tick of `cron`, exactly one per tick."""

    cron: Annotated[str, Meta(min_length=1, max_length=200)]
    message: PublishRequest = PublishRequest()
    timezone: Word = "UTC"
    missed: Missed = Missed.ONE
    paused: bool = False


class ScheduleView(Struct, frozen=True, omit_defaults=True):
    name: str
    queue: str
    cron: str
    timezone: str
    missed: Missed
    paused: bool
    message: PublishRequest
    next_at: Time | None = None
    last_at: Time | None = None


class Schedules(Struct, frozen=True):
    schedules: list[ScheduleView]


class AgentView(Struct, frozen=True, omit_defaults=True):
    """How often it looks, and when it last had work to do; `error` if its last run here failed."""

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


class Workers(Struct, frozen=True):
    """`now` is the store's."""

    workers: list[WorkerView]
    now: Time


class WorkerHeartbeat(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker that says it is there; it does so every 30 s, and when it comes."""

    host: Annotated[str, Meta(max_length=200)]
    pid: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    queues: Annotated[list[Name], Meta(max_length=1_000)]


class QueueCountsView(Struct, frozen=True):
    """How many are where; of the ended, only the latest are counted."""

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


class Stats(Struct, frozen=True):
    """Counted at `counted_at`, not for this call: a count must not become a load."""

    queues: list[QueueCountsView]
    workers: int
    durability: str
    counted_at: Time


class AutoscaleView(Struct, frozen=True):
    """How many workers a queue needs, and why."""

    queue: str
    scope: str
    workers: int
    ready: int
    claimed: int
    ended_per_second: float
    run_seconds: float


class AutoscaleViews(Struct, frozen=True):
    queues: list[AutoscaleView]


class Health(Struct, frozen=True):
    status: Literal["ok"]


class Version(Struct, frozen=True):
    version: str
    api: str
    engine: str
    durability: str


def make_queue_view(queue: Queue) -> QueueView:
    return QueueView(queue.name, queue.scope.name, queue.state, queue.system, queue.settings)


def make_schedule_view(schedule: Schedule, queue: str) -> ScheduleView:
    return ScheduleView(
        schedule.name,
        queue,
        schedule.cron,
        schedule.timezone,
        schedule.missed,
        schedule.paused,
        make_publish_request(schedule.draft),
        to_optional_datetime(schedule.next_at or None),
        to_optional_datetime(schedule.last_at),
    )


def make_worker_view(row: WorkerInfo, state: Literal["running", "stopping", "gone"]) -> WorkerView:
    times = to_datetime(row.started_at), to_datetime(row.seen_at)
    return WorkerView(row.id, row.host, row.pid, state, list(row.queues), *times)
