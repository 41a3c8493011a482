"""Wire types of publish."""

import re
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.model.fields import (
    JSON,
    MAX_BATCH,
    MAX_HEADER_LENGTH,
    NAME_PATTERN,
    MessageFields,
    copy_message_fields,
)
from penstock.model.message import Dedup, Draft
from penstock.model.routing import PRIORITIES_PER_TIER, TIERS
from penstock.wire.fields import (
    Duration,
    Id,
    Json,
    Lease,
    Name,
    Number,
    Runs,
    Seconds,
    Time,
    Url,
    Word,
    decode_body,
    encode_body,
    to_optional_datetime,
    to_optional_moment,
)

Tier = Literal["background", "low", "normal", "high", "critical"]
Pairs = dict[Word, Annotated[str, Meta(max_length=MAX_HEADER_LENGTH)]]


class DedupKey(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A publish with the same key within `window` seconds is a duplicate."""

    key: Word
    window: Duration = 86_400.0


class PublishRequest(
    MessageFields, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A message to publish. `body` is any JSON and is stored as sent. Use `body_base64` and
    `content_type` for other bytes.

    Fields of ScaiQueue are accepted: `priority_tier` and `priority_score` (priority = tier * 1000 +
    score), `idempotency_key` (dedup key for a day), `visibility_timeout_s` (lease), `max_retries`
    (max_attempts), and `source_type` and `source_id` (headers)."""

    queue: Name = "default"
    type: Word = "message"
    body: Json = UNSET
    body_base64: str | None = None
    content_type: Word = JSON
    priority: Number = 0
    delay: Seconds = 0.0
    run_at: Time | None = None
    ttl: Seconds | None = None
    expires_at: Time | None = None
    deadline: Time | None = None
    dedup: DedupKey | None = None
    unique: Word | None = None
    name: Word | None = None
    headers: Pairs | None = None
    labels: Pairs | None = None
    lease: Lease | None = None
    timeout: Duration | None = None
    max_attempts: Runs | None = None
    max_deliveries: Runs | None = None
    ordering_key: Word | None = None
    correlation_id: Word | None = None
    causation_id: Word | None = None
    parent_id: Id | None = None
    traceparent: Word | None = None
    callback: Url | None = None
    priority_tier: Tier | None = None
    priority_score: Annotated[int, Meta(ge=0, le=1_000)] | None = None
    idempotency_key: Word | None = None
    visibility_timeout_s: Lease | None = None
    max_retries: Runs | None = None
    source_type: Word | None = None
    source_id: Word | None = None


class PublishBatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Publishes a batch in one transaction. With `atomic`, all messages are published or none;
    otherwise each succeeds or fails on its own."""

    messages: Annotated[list[PublishRequest], Meta(min_length=1, max_length=MAX_BATCH)]
    atomic: bool = False


class PlainRequest(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A PublishRequest with common fields only. It is decoded four times as fast."""

    body: Raw
    # Checked once per distinct name.
    queue: str = "default"
    type: Word = "message"
    priority: Number = 0


class PlainBatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A PublishBatchRequest of plain requests."""

    messages: Annotated[list[PlainRequest], Meta(min_length=1, max_length=MAX_BATCH)]
    atomic: bool = False


class Problem(Struct, frozen=True, omit_defaults=True):
    """The error of one item in a batch."""

    code: str
    message: str


class PublishResult(Struct, frozen=True):
    """If `duplicate` is true, `id` is the earlier message with the same key. `routed` lists the
    queues that rules sent the message and its copies to."""

    id: str
    duplicate: bool = False
    routed: list[str] | UnsetType = UNSET


class PublishOutcome(Struct, frozen=True, omit_defaults=True):
    """The message id, or the error."""

    id: str | None = None
    duplicate: bool = False
    error: Problem | None = None
    routed: list[str] = []


class PublishOutcomes(Struct, frozen=True):
    """The outcomes, in the order of the messages."""

    items: list[PublishOutcome]
    published: int
    refused: int


SCAIQUEUE_FIELDS = (
    "priority_tier", "priority_score", "idempotency_key", "visibility_timeout_s", "max_retries",
    "source_type", "source_id",
)  # fmt: skip
NAME = re.compile(NAME_PATTERN)
decode_plain = msgspec.json.Decoder(PlainRequest).decode
decode_plain_batch = msgspec.json.Decoder(PlainBatchRequest).decode
decode_any = msgspec.json.Decoder(PublishRequest).decode
decode_any_batch = msgspec.json.Decoder(PublishBatchRequest).decode


def decode_request(body: bytes) -> PublishRequest | PlainRequest:
    try:
        sent = decode_plain(body)
        if is_name(sent.queue):
            return sent
    except msgspec.DecodeError:
        # It has other fields, or it is refused for what is wrong with it.
        pass
    return decode_any(body)


def decode_batch_request(body: bytes) -> PublishBatchRequest | PlainBatchRequest:
    try:
        sent = decode_plain_batch(body)
        if all(map(is_name, {each.queue for each in sent.messages})):
            return sent
    except msgspec.DecodeError:
        pass
    return decode_any_batch(body)


@lru_cache(1_024)
def is_name(text: str) -> bool:
    return NAME.fullmatch(text) is not None


def make_draft(sent: PublishRequest | PlainRequest, publisher: str | None = None) -> Draft:
    if isinstance(sent, PlainRequest):
        return Draft(
            publisher=publisher,
            queue=sent.queue,
            type=sent.type,
            body=bytes(sent.body),
            priority=sent.priority,
        )
    if any(getattr(sent, word) is not None for word in SCAIQUEUE_FIELDS):
        sent = translate_words(sent)
    return Draft(
        queue=sent.queue,
        type=sent.type,
        body=decode_body(sent.body, sent.body_base64),
        priority=sent.priority,
        delay=sent.delay,
        run_at=to_optional_moment(sent.run_at),
        ttl=sent.ttl,
        expires_at=to_optional_moment(sent.expires_at),
        dedup=make_dedup(sent),
        deadline=to_optional_moment(sent.deadline),
        parent_id=None if sent.parent_id is None else int(sent.parent_id),
        callback=sent.callback,
        publisher=publisher,
        **copy_message_fields(sent),
    )


def translate_words(sent: PublishRequest) -> PublishRequest:
    """Replaces ScaiQueue's names of fields. A field must not be given under both names."""
    headers = {
        name: value
        for name in ("source_type", "source_id")
        if (value := getattr(sent, name)) is not None
    }
    given = {
        "priority": translate_priority(sent),
        "dedup": None if sent.idempotency_key is None else DedupKey(sent.idempotency_key),
        "lease": sent.visibility_timeout_s,
        "max_attempts": sent.max_retries,
        "headers": {**(sent.headers or {}), **headers} if headers else None,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    for name in changes.keys() - {"headers"}:
        if getattr(sent, name) not in (None, 0) or (name == "dedup" and sent.unique is not None):
            raise InvalidInput(f"{name} is given twice: by its own name and by that of ScaiQueue")
    return replace(sent, **changes)


def translate_priority(sent: PublishRequest) -> int | None:
    if sent.priority_tier is None and sent.priority_score is None:
        return None
    tier = TIERS[sent.priority_tier or "normal"]
    return tier * PRIORITIES_PER_TIER + (sent.priority_score or 0)


def make_dedup(sent: PublishRequest) -> Dedup | None:
    """`unique` takes precedence over `dedup`. It holds until the message ends."""
    if sent.unique is not None:
        return Dedup(sent.unique, window=None)
    return None if sent.dedup is None else Dedup(sent.dedup.key, sent.dedup.window)


def make_publish_request(draft: Draft) -> PublishRequest:
    """Converts a draft to the request that a client sends."""
    body, base64 = encode_body(draft.body)
    dedup = draft.dedup
    lasting = dedup is not None and dedup.window is None
    return PublishRequest(
        queue=draft.queue,
        type=draft.type,
        body=body,
        body_base64=base64,
        priority=draft.priority,
        delay=draft.delay,
        run_at=to_optional_datetime(draft.run_at),
        ttl=draft.ttl,
        expires_at=to_optional_datetime(draft.expires_at),
        deadline=to_optional_datetime(draft.deadline),
        dedup=None if dedup is None or dedup.window is None else DedupKey(dedup.key, dedup.window),
        unique=dedup.key if dedup is not None and lasting else None,
        parent_id=None if draft.parent_id is None else str(draft.parent_id),
        callback=draft.callback,
        **copy_message_fields(draft),
    )
