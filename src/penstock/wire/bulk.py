"""Wire types of bulk actions, and of the operations that replace a message."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct

from penstock.model.bulk import (
    BulkAction,
    BulkActor,
    BulkCounts,
    BulkFailure,
    BulkRequest,
    BulkState,
    BulkVerb,
)
from penstock.model.changes import Horizon
from penstock.model.structs import copy_fields
from penstock.wire.fields import (
    Id,
    Json,
    Name,
    Number,
    Time,
    Word,
    to_datetime,
    to_moment,
    to_optional_datetime,
    to_optional_moment,
)

BulkId = Annotated[str, Meta(pattern=r"^[0-9]{1,12}$", description="Id of a bulk action.")]


class NewBulk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Selects messages by a filter or by ids. `queue` is the destination of the verb `move`, and
    `priority` that of `reprioritise`. `rate` is in messages per second. A dry run only counts."""

    verb: BulkVerb
    filter: Annotated[str, Meta(min_length=1)] | None = None
    ids: Annotated[list[Id], Meta(min_length=1, max_length=10_000)] | None = None
    queue: Name | None = None
    to_scope: Name | None = None
    priority: Number | None = None
    rate: Annotated[float, Meta(ge=0.01, le=1_000_000)] | None = None
    dry_run: bool = False
    name: Word | None = None
    horizon: (
        Annotated[
            str,
            Meta(
                pattern=r"^[0-9]{1,18}\.[0-9]{1,18}\.[0-9]{1,18}$",
                description="`horizon` of a dry run, to change only the messages that it counted.",
            ),
        ]
        | None
    ) = None


class FailedItem(Struct, frozen=True):
    """A message that an action could not change, and the error code."""

    id: str
    code: str


class BulkView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bulk action. Messages up to `as_of` belong to it. In a dry run, `done` counts the
    messages that would change. `skipped` counts by reason; of the failed ones, the first 100 are
    listed."""

    id: str
    verb: BulkVerb
    scope: str
    state: BulkState
    as_of: Time
    created_at: Time
    updated_at: Time
    matched: int
    done: int
    failed: int
    skipped: dict[str, int]
    subject: str
    reason: str | None = None
    ended_at: Time | None = None
    filter: str | None = None
    queue: str | None = None
    to_scope: str | None = None
    priority: int | None = None
    rate: float | None = None
    dry_run: bool = False
    name: str | None = None
    failures: list[FailedItem] = []
    # The moment `as_of` as a text that another action takes.
    horizon: str = ""


class BulkList(Struct, frozen=True):
    """Bulk actions, newest first."""

    actions: list[BulkView]


class MoveRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The queue to move the message to. Without `to_scope` it is in the scope of the message."""

    queue: Name
    to_scope: Name | None = None


class EditRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The new body. An empty request is an empty body."""

    body: Json = UNSET
    body_base64: str | None = None


class ReprioritiseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    priority: Number


class ReplacedMessage(Struct, frozen=True):
    """The id of the new message, and of the one that it replaces."""

    id: str
    replaces: str


class ReprioritisedMessage(Struct, frozen=True):
    id: str
    priority: int


def format_horizon(horizon: Horizon) -> str:
    return f"{horizon.now}.{horizon.message}.{horizon.history}"


def parse_horizon(text: str) -> Horizon:
    now, message, history = map(int, text.split("."))
    return Horizon(now, message, history)


def make_bulk_view(action: BulkAction) -> BulkView:
    request, counts = action.request, action.counts
    return copy_fields(
        BulkView,
        request,
        id=str(action.id),
        scope=action.scope,
        state=action.state,
        as_of=to_datetime(action.as_of.now),
        created_at=to_datetime(action.created_at),
        updated_at=to_datetime(action.updated_at),
        matched=counts.matched,
        done=counts.done,
        failed=counts.failed,
        skipped=counts.skipped,
        subject=action.actor.subject,
        reason=action.reason,
        ended_at=to_optional_datetime(action.ended_at),
        horizon=format_horizon(action.as_of),
        failures=[FailedItem(str(each.id), each.code) for each in counts.failures],
    )


def make_bulk_action(view: BulkView, tenant: str) -> BulkAction:
    """Makes the action that a server describes, without what only servers know."""
    failures = tuple(BulkFailure(int(each.id), each.code) for each in view.failures)
    return BulkAction(
        id=int(view.id),
        tenant=tenant,
        scope=view.scope,
        request=copy_fields(BulkRequest, view, ids=None if view.filter is not None else ()),
        actor=BulkActor(view.subject),
        as_of=parse_horizon(view.horizon),
        state=view.state,
        reason=view.reason,
        counts=BulkCounts(view.done, view.skipped, view.failed, failures),
        created_at=to_moment(view.created_at),
        updated_at=to_moment(view.updated_at),
        ended_at=to_optional_moment(view.ended_at),
    )
