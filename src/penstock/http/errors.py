"""The error envelope and the HTTP status of each error."""

import re
from collections.abc import Collection
from difflib import get_close_matches

import msgspec
from msgspec import Struct

from penstock import errors
from penstock.errors import PenstockError

UNKNOWN_FIELD = re.compile("Object contains unknown field `(?P<name>[^`]{1,100})`")
CAPITAL = re.compile("(?<=[a-z])(?=[A-Z])")
# Field names of other systems.
OTHER_NAMES = {
    "payload": "body", "command": "type", "commands": "queues", "webhook": "callback",
    "idempotency_key": "dedup", "delay_seconds": "delay", "wait_seconds": "wait",
    "lease_seconds": "lease", "ack_timeout": "lease", "extend_seconds": "lease",
    "lock_token": "token", "receipt_handle": "token", "callback_url": "url",
    "delivery_mode": "mode", "delivery": "mode", "timeout": "wait",
}  # fmt: skip
AT_FIELD = re.compile(r" - at `(?P<path>[^`]*)`$")

STATUS: dict[type[PenstockError], int] = {
    errors.PenstockError: 500,
    errors.InvalidInput: 422,
    errors.BodyTooLarge: 413,
    errors.Malformed: 400,
    errors.RequestTimeout: 408,
    errors.InvalidToken: 400,
    errors.Refused: 409,
    errors.Unauthenticated: 401,
    errors.RateLimited: 429,
    errors.Forbidden: 403,
    errors.MethodNotAllowed: 405,
    errors.TooManyWaiting: 503,
    errors.TooManyConnections: 503,
    errors.QueueFull: 429,
    errors.TooManyBulks: 429,
    errors.SignalsFull: 429,
    errors.NotFound: 404,
    errors.Archived: 410,
    errors.TokenExpired: 410,
    errors.Conflict: 409,
    errors.CannotGovern: 503,
    errors.IdentityUnavailable: 503,
    errors.JobFailed: 409,
    errors.StoreError: 503,
    # The write may have happened, so clients must not retry it like a 503.
    errors.OutcomeUnknown: 504,
}
RETRY_AFTER = {429: b"1", 503: b"1"}


class Detail(Struct, frozen=True):
    """The problem with one field."""

    field: str
    message: str


class Error(Struct, frozen=True):
    """`code` is stable; `message` is for humans."""

    code: str
    message: str
    details: list[Detail]
    request_id: str


class Envelope(Struct, frozen=True):
    error: Error


encode = msgspec.json.Encoder().encode


def find_status(error: PenstockError) -> int:
    return find_class_status(type(error))


def find_class_status(error: type[PenstockError]) -> int:
    """Returns the status of the nearest class that has one."""
    return next(STATUS[kind] for kind in error.__mro__ if kind in STATUS)


def encode_error(error: PenstockError, request_id: str) -> bytes:
    details = [Detail(field, message) for field, message in error.details]
    return encode(Envelope(Error(error.code, str(error), details, request_id)))


def encode_internal_error(request_id: str) -> bytes:
    text = "internal error; see the server log for this request id"
    return encode(Envelope(Error("INTERNAL", text, [], request_id)))


def suggest_field(error: Exception, known: Collection[str], scoped: bool) -> str:
    """Returns advice about an unknown field of a body, or nothing."""
    found = UNKNOWN_FIELD.fullmatch(str(error))
    if found is None:
        return ""
    name = found["name"]
    if name == "scope" and scoped:
        return "; the scope is a query parameter: ?scope=NAME"
    snake = CAPITAL.sub("_", name).lower()
    other = OTHER_NAMES.get(snake, snake)
    near = [other] if other in known else get_close_matches(snake, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def make_malformed_error(
    error: msgspec.DecodeError | UnicodeDecodeError | RecursionError, hint: str = ""
) -> PenstockError:
    """Maps a msgspec error: Malformed if the body is not JSON, else InvalidInput."""
    if not isinstance(error, msgspec.ValidationError):
        return errors.Malformed(f"body is not valid JSON: {error}")
    text = str(error)
    found = AT_FIELD.search(text)
    field = found["path"].removeprefix("$").removeprefix(".") if found else ""
    said = (text[: found.start()] if found else text) + hint
    unfit = errors.InvalidInput(f"{field or 'body'}: {said}")
    unfit.details = ((field or "body", said),)
    return unfit
