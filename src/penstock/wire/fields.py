"""Field types of the wire: bounded strings, ISO 8601 timestamps, bodies as JSON or base64."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from penstock.errors import InvalidInput
from penstock.model.fields import (
    MAX_DELAY_S,
    MAX_INTEGER,
    MAX_LEASE_S,
    MAX_RUNS,
    MAX_URL_LENGTH,
    MAX_WORD_LENGTH,
    MIN_DURATION_S,
    MIN_LEASE_S,
    NAME_PATTERN,
)
from penstock.model.message import Moment

Name: TypeAlias = Annotated[
    str, Meta(pattern=rf"^{NAME_PATTERN}$", description="Name of a scope or queue.")
]
QueueName: TypeAlias = Annotated[
    str,
    Meta(
        pattern=rf"^{NAME_PATTERN}(/{NAME_PATTERN})?$",
        description="Name of a queue, or `queue/subscription`.",
    ),
]
Reference: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=400, description="A message id, or `queue/name`.")
]
FileName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=255, description="The file name.")
]
PageLimit: TypeAlias = Annotated[int, Meta(ge=1, le=1_000, description="Entries per page.")]
Cursor: TypeAlias = Annotated[str, Meta(max_length=1_000, description="From the previous page.")]
Word: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_WORD_LENGTH)]
Text: TypeAlias = Annotated[str, Meta(max_length=1_000_000)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_DELAY_S)]
Duration: TypeAlias = Annotated[float, Meta(ge=MIN_DURATION_S, le=MAX_DELAY_S)]
Lease: TypeAlias = Annotated[float, Meta(ge=MIN_LEASE_S, le=MAX_LEASE_S, description="In seconds.")]
Runs: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_RUNS)]
Number: TypeAlias = Annotated[int, Meta(ge=-MAX_INTEGER - 1, le=MAX_INTEGER)]
Id: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]{1,19}$", description="Message id.")]
Url: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_URL_LENGTH,
        description="http or https URL without credentials.",
    ),
]
Token: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=MAX_WORD_LENGTH, description="Lock token from the claim.")
]
# Raw keeps the JSON text as it was sent.
Json: TypeAlias = Raw | UnsetType
Time: TypeAlias = Annotated[datetime, Meta(tz=True)]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(1_024)
def to_datetime(moment: Moment) -> datetime:
    """Cached, because messages of one batch or claim share their timestamps."""
    return EPOCH + timedelta(microseconds=moment)


def to_optional_datetime(moment: Moment | None) -> datetime | None:
    return None if moment is None else to_datetime(moment)


def to_moment(time: datetime) -> Moment:
    return (time - EPOCH) // timedelta(microseconds=1)


def to_optional_moment(time: datetime | None) -> Moment | None:
    return None if time is None else to_moment(time)


def decode_body(body: Json, base64: str | None) -> bytes:
    """Returns the bytes of a body: its JSON text as sent, or the decoded base64."""
    if base64 is None:
        return b"" if body is UNSET else bytes(body)
    if body is not UNSET:
        raise InvalidInput("body and body_base64 are mutually exclusive")
    try:
        return b64decode(base64, validate=True)
    except (NotBase64, ValueError):
        raise InvalidInput("body_base64 is not valid base64") from None


def encode_body(body: bytes) -> tuple[Json, str | None]:
    """Returns JSON unchanged and other bytes as base64. An empty body is neither."""
    if not body:
        return UNSET, None
    if is_json(body):
        return Raw(body), None
    return UNSET, b64encode(body).decode()


def is_json(body: bytes) -> bool:
    """True if the bytes can be embedded in a JSON response."""
    if body[0] <= 32 or body[-1] <= 32:
        return False
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
