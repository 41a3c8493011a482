"""Wire types of claim, settle and artifacts."""

from mimetypes import guess_type
from typing import Annotated, Generic, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.model.fields import MAX_BATCH, MAX_HEADER_LENGTH, MessageFields
from penstock.model.queue import QueueState
from penstock.wire.fields import (
    FileName,
    Json,
    Lease,
    QueueName,
    Runs,
    Seconds,
    Text,
    Time,
    Token,
    Word,
)
from penstock.wire.publish import Problem


class InlineArtifact(Struct, frozen=True, forbid_unknown_fields=True):
    """A small file sent with the result. Upload large files instead."""

    name: FileName
    content: Annotated[str, Meta(description="Base64-encoded content.")]


class ArtifactView(Struct, frozen=True):
    """`size` is in bytes. `content_type` follows from the extension of the name."""

    name: str
    size: int
    content_type: str = "application/octet-stream"


def make_artifact_view(name: str, size: int) -> ArtifactView:
    return ArtifactView(name, size, guess_type(name)[0] or "application/octet-stream")


class ArtifactsView(Struct, frozen=True):
    """Sorted by name. Empty until the message completes or fails."""

    artifacts: list[ArtifactView]


class ClaimSource(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue to claim from. Without `types`, messages of any type."""

    queue: QueueName
    types: Annotated[list[Word], Meta(max_length=100)] = []


class ClaimRequest(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Claims up to `limit` messages from up to 16 queues. `wait` is the number of seconds to wait
    for the first message, at most 30. A client that disconnects gets no messages.
    `visibility_timeout_s` is ScaiQueue's name for `lease`."""

    queues: Annotated[list[ClaimSource], Meta(min_length=1, max_length=16)]
    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = 1
    wait: Annotated[float, Meta(ge=0, le=2**31)] = 0.0
    lease: Lease | None = None
    consumer: Word | None = None
    begins: bool = False
    merge: Literal["rotate", "rank"] | None = None
    visibility_timeout_s: Lease | None = None


class Delivery(MessageFields, frozen=True, omit_defaults=True):
    """A claimed message, leased until `lease_until`. Settle it with its `token`. With `has_steps`,
    earlier deliveries have stored durable steps: read them with `/v1/run`."""

    id: str
    token: str
    queue: str
    type: str
    priority: int
    attempts: int
    deliveries: int
    created_at: Time
    lease_until: Time
    body: Json = UNSET
    body_base64: str | None = None
    fence: int = 0
    suspect: bool = False
    has_steps: bool = False
    deadline: Time | None = None
    parent_id: str | None = None


class Deliveries(Struct, frozen=True):
    """The claimed messages, and the state of each queue, such as paused."""

    messages: list[Delivery]
    queues: dict[str, QueueState]


class CompleteRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Completes a message. `result` is any JSON; use `result_base64` for other bytes and
    `artifacts` for files."""

    token: Token
    result: Json = UNSET
    result_base64: str | None = None
    artifacts: Annotated[list[InlineArtifact], Meta(max_length=MAX_BATCH)] = []
    seen: Annotated[list[Word], Meta(
        max_length=100,
        description="Keys recorded with the completion. `/v1/seen` finds them for a day.",
    )] = []  # fmt: skip


class SeenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Asks whether a message of the queue recorded the key when it was completed."""

    queue: QueueName
    key: Word


class SeenAnswer(Struct, frozen=True, omit_defaults=True):
    """`id` is the message that recorded the key."""

    duplicate: bool
    id: str | None = None


class FailRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fails a message permanently. It is neither retried nor dead-lettered. Use `artifacts` for
    files that explain the failure."""

    token: Token
    error: Annotated[str, Meta(min_length=1, max_length=1_000_000)]
    traceback: Text | None = None
    artifacts: Annotated[list[InlineArtifact], Meta(max_length=1_000)] = []


class NackRequest(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Rejects a message for retry after `delay` or the queue's backoff, while attempts are left."""

    token: Token
    error: Text | None = None
    reason: Word | None = None
    delay: Seconds | None = None
    max_attempts: Runs | None = None
    max_total: Seconds | None = None
    traceback: Text | None = None


class RejectRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Moves a message to the dead letters, even if attempts are left."""

    token: Token
    error: Text | None = None
    traceback: Text | None = None


class ReleaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Returns a message unprocessed. It uses up no attempt and no delivery."""

    token: Token


class ParkRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Parks a message whose type the consumer does not know, until another consumer takes it."""

    token: Token
    reason: Word = "UNKNOWN_TASK"


class SettleCancelledRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Confirms that work stopped because a cancel was requested."""

    token: Token
    error: Text | None = None


class ExtendRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Extends the lease to at least `lease` seconds from now."""

    token: Token
    lease: Lease


class BeginRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Marks a message as started."""

    token: Token


class ProgressRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Reports the progress of a message."""

    token: Token
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None
    note: Annotated[str, Meta(max_length=MAX_HEADER_LENGTH)] | None = None


class Settled(Struct, frozen=True, omit_defaults=True):
    """The new state. `cancel_requested` asks the consumer to stop. A message that waits for a retry
    runs again after `delay` seconds, at about `due_at`."""

    id: str
    state: str | None = None
    lease_until: Time | UnsetType = UNSET
    cancel_requested: bool = False
    delay: float | None = None
    due_at: Time | None = None


class SettleOutcome(Struct, frozen=True, omit_defaults=True):
    """The new state of one item, or its error."""

    id: str | None = None
    state: str | None = None
    lease_until: Time | UnsetType = UNSET
    cancel_requested: bool = False
    delay: float | None = None
    due_at: Time | None = None
    error: Problem | None = None


class SettleOutcomes(Struct, frozen=True):
    """The outcomes, in the order of the items."""

    items: list[SettleOutcome]
    done: int
    refused: int


Item = TypeVar("Item")


class Items(Struct, Generic[Item], frozen=True, forbid_unknown_fields=True):
    """A batch of one verb. Each item succeeds or fails on its own."""

    items: Annotated[list[Item], Meta(min_length=1, max_length=MAX_BATCH)]
