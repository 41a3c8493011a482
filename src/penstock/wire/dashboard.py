"""Wire types of the dashboard: session, overview, failure groups."""

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from penstock.model.message import Moment
from penstock.model.metrics import MetricPoint
from penstock.model.queue import QueueState
from penstock.model.settings import Ordering
from penstock.model.structs import copy_fields
from penstock.rules.attention import AttentionKind, AttentionLevel
from penstock.rules.failure_groups import FailureGroup, Trait
from penstock.wire.fields import Time, to_datetime

Credential = Annotated[
    str, Meta(min_length=1, max_length=8_192, description="An API key, or a token of the issuer.")
]


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    key: Credential


class SessionView(Struct, frozen=True, omit_defaults=True):
    """The caller and its rights. Without `signed_in`, only `asks` and `reason` are set.

    `grants` are written as in roles. `csrf` goes into the header X-CSRF-Token of writes that a
    cookie authenticates. `build` changes when the dashboard's files do.
    """

    # False if the server asks for no credentials.
    asks: bool
    signed_in: bool
    reason: str = ""
    subject: str = ""
    tenant: str = ""
    grants: list[str] = []
    scopes: list[str] = []
    csrf: str | None = None
    expires_at: Time | None = None
    version: str = ""
    engine: str = ""
    durability: str = ""
    build: str = ""
    # The name given by `penstock serve --environment`.
    environment: str = ""


class QueueFigures(Struct, frozen=True, kw_only=True):
    """A queue now and in the last five minutes, in 60 buckets of 5 s; the last one is not over.

    `published` is null in buckets that the server does not know. Rates are per second.
    """

    queue: str
    state: QueueState
    scope_paused: bool
    ordering: Ordering
    kind: Literal["competing", "broadcast"]
    # True if messages of these five minutes have an ordering key.
    keyed: bool
    ready: int
    scheduled: int
    claimed: int
    dead: int
    # When the oldest claimable message became ready.
    oldest_at: Time | None
    slots: int
    workers: int
    published_rate: float
    completed_rate: float
    failed_rate: float
    # How many messages died in these five minutes.
    died: int
    published: list[int | None]
    completed: list[int]
    failed: list[int]


class OverviewTotals(Struct, frozen=True):
    """Sums over all queues that the caller may read, with the series of their buckets."""

    ready: int
    scheduled: int
    claimed: int
    dead: int
    slots: int
    workers: int
    oldest_at: Time | None
    published_rate: float
    completed_rate: float
    failed_rate: float
    published: list[int | None]
    completed: list[int]
    failed: list[int]
    waiting: list[int]
    running: list[int]
    # Seconds that the oldest claimable message had waited.
    oldest: list[float]


class AttentionView(Struct, frozen=True):
    kind: AttentionKind
    severity: AttentionLevel
    subject: str
    text: str
    detail: str
    # When a message last died, or since when messages wait.
    at: Time | None


class Overview(Struct, frozen=True):
    """The busiest queues come first; `queue_count` counts all. `now` is the store's clock."""

    now: Time
    bucket_seconds: int
    totals: OverviewTotals
    attention: list[AttentionView]
    queues: list[QueueFigures]
    queue_count: int


class MinuteFigures(Struct, frozen=True, kw_only=True):
    """A minute that begins at `at`. Percentiles of the wait before a run are in seconds."""

    at: Time
    published: int
    completed: int
    failures: int
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None


class OverviewHour(Struct, frozen=True):
    """The last hour of all queues that the caller may read. The last minute ends after `now`."""

    now: Time
    minutes: list[MinuteFigures]


class FailureCauses(Struct, frozen=True):
    """Fingerprints of the causes of failure of the last 24 hours.

    `complete` is false if there may be more.
    """

    fingerprints: list[str]
    complete: bool


class TraitView(Struct, frozen=True):
    """An attribute that `share` of the group has, and only `others` of the other failures."""

    name: str
    value: str
    share: float
    others: float


class FailureGroupView(Struct, frozen=True):
    """Failures with a similar error. `filter` selects the messages of the group."""

    fingerprint: str
    template: str
    sample: str
    sample_id: str
    count: int
    queues: list[str]
    first_at: Time
    last_at: Time
    trend: list[int]
    traits: list[TraitView]
    filter: str


class FailureGroups(Struct, frozen=True):
    """Groups of dead letters and failed messages, the largest first.

    `scanned` messages were read; `complete` is false if there are more. The trend has 24 buckets
    from `since` to `now`.
    """

    groups: list[FailureGroupView]
    scanned: int
    complete: bool
    since: Time
    now: Time


class NewView(Struct, frozen=True, forbid_unknown_fields=True):
    filter: Annotated[str, Meta(min_length=1)]


class SavedViewItem(Struct, frozen=True):
    """A filter of messages under a name. `saved_by` is the subject of the last change."""

    name: str
    filter: str
    saved_by: str
    saved_at: Time


class SavedViewList(Struct, frozen=True):
    views: list[SavedViewItem]


def make_hour_view(now: Moment, points: Iterable[MetricPoint]) -> OverviewHour:
    minutes = [copy_fields(MinuteFigures, each, at=to_datetime(each.at)) for each in points]
    return OverviewHour(to_datetime(now), minutes)


def make_trait_view(trait: Trait) -> TraitView:
    return TraitView(trait.name, trait.value, round(trait.share, 3), round(trait.others, 3))


def make_group_view(group: FailureGroup) -> FailureGroupView:
    return copy_fields(
        FailureGroupView,
        group,
        sample_id=str(group.sample_id),
        first_at=to_datetime(group.first_at),
        last_at=to_datetime(group.last_at),
        traits=[make_trait_view(trait) for trait in group.traits],
    )
