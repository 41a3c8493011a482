"""The fields of a message and their limits. Other forms of a message derive from them."""

from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct

JSON = "application/json"

# Names of scopes and queues.
NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
# Types, keys, ids, consumers and other short texts.
MAX_WORD_LENGTH = 200
MAX_HEADER_LENGTH = 8_192
MAX_URL_LENGTH = 2_000
# All rarely used fields of a message together, as JSON.
MAX_META_BYTES = 65_536
MIN_LEASE_S, MAX_LEASE_S = 0.1, 43_200.0
MAX_DELAY_S = 10 * 366 * 86_400.0
MIN_DURATION_S = 0.001
# Stores count attempts and deliveries in 16 bits.
MAX_RUNS = 32_767
MAX_WAITS = 10_000
MAX_INTEGER = 2**63 - 1
# One below the largest integer that a double holds exactly, which means never: Redis scores and
# JSON parsers keep it.
MAX_MOMENT = 2**53 - 2
# Items of one request: messages, settlements, ids.
MAX_BATCH = 1_000


class JobFields(Struct, frozen=True, kw_only=True):
    """The optional fields of a message that a task can set too."""

    name: str | None = None
    headers: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    lease: float | None = None
    timeout: float | None = None
    max_attempts: int | None = None
    max_deliveries: int | None = None
    correlation_id: str | None = None


class MessageFields(JobFields, frozen=True, kw_only=True):
    """The optional fields that have one type in every form of a message."""

    content_type: str = JSON
    ordering_key: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None


JOB_FIELDS, MESSAGE_FIELDS = JobFields.__struct_fields__, MessageFields.__struct_fields__
get_job_values, get_message_values = attrgetter(*JOB_FIELDS), attrgetter(*MESSAGE_FIELDS)


def copy_job_fields(source: JobFields) -> dict[str, Any]:
    return dict(zip(JOB_FIELDS, get_job_values(source), strict=True))


def copy_message_fields(source: MessageFields) -> dict[str, Any]:
    """Returns the fields that one form of a message passes to another unchanged."""
    return dict(zip(MESSAGE_FIELDS, get_message_values(source), strict=True))


class Field(Struct, frozen=True):
    """Describes a field of a draft. Texts are bounded by length, numbers by value."""

    name: str
    kind: Literal["name", "text", "texts", "url", "bytes", "whole", "number", "moment", "dedup"]
    description: str
    least: float = 0
    most: float = 0


def _word(name: str, description: str) -> Field:
    return Field(name, "text", description, 1, MAX_WORD_LENGTH)


def _seconds(name: str, description: str, least: float = 0.0, most: float = MAX_DELAY_S) -> Field:
    return Field(name, "number", description, least, most)


def _moment(name: str, description: str) -> Field:
    return Field(name, "moment", description, 0, MAX_MOMENT)


# In the order of the columns of the lake.
FIELDS = {
    field.name: field
    for field in (
        Field("queue", "name", "Queue of the message.", 1, 128),
        _word("type", "Message type set by the producer."),
        Field(
            "priority",
            "whole",
            "Messages with higher priority are claimed first.",
            -MAX_INTEGER - 1,
            MAX_INTEGER,
        ),
        Field("body", "bytes", "Payload. May be empty."),
        _word("content_type", "Media type of the body."),
        _word("name", "Unique name set by the producer."),
        Field("headers", "texts", "Headers of the message.", 0, MAX_HEADER_LENGTH),
        Field("labels", "texts", "Labels for searching messages.", 0, MAX_HEADER_LENGTH),
        _moment(
            "deadline", "When it expires. Determines the order if the queue orders by deadline."
        ),
        _seconds("lease", "Lease of a claim.", MIN_LEASE_S, MAX_LEASE_S),
        _seconds("timeout", "Time limit of one attempt.", MIN_DURATION_S),
        Field("max_attempts", "whole", "Maximum attempts before dead-lettering.", 1, MAX_RUNS),
        Field("max_deliveries", "whole", "Maximum deliveries before dead-lettering.", 1, MAX_RUNS),
        _word("ordering_key", "Messages with the same key run one at a time."),
        Field("dedup", "dedup", "Deduplication key.", 1, MAX_WORD_LENGTH),
        _word("correlation_id", "Id that related messages share."),
        _word("causation_id", "Id of the message or event that caused this one."),
        Field("parent_id", "whole", "Message that this one was created from.", 1, MAX_INTEGER),
        _word("traceparent", "W3C trace context."),
        Field("hops", "whole", "Hop count set by the producer.", 0, 1_000),
        _moment("run_at", "When it may run for the first time."),
        _moment("expires_at", "When it expires unless it was claimed."),
        _seconds("delay", "Delay before the first run, in seconds."),
        _seconds("ttl", "Seconds after which it expires unless it was claimed."),
        Field("callback", "url", "URL to call when the message ends.", 1, MAX_URL_LENGTH),
    )
}
