"""What is posted to whoever asked, and the secrets that it is signed with."""

from msgspec import UNSET, Raw, Struct

from penstock.callback import SigningSecrets
from penstock.message import HistoryRow, Record, State
from penstock.queue import Queue
from penstock.wire.texts import Json, Time, is_json, to_datetime, to_optional_datetime

# A longer result is fetched by whoever wants it.
MAX_RESULT_BYTES = 65_536


class CallbackResult(Struct, frozen=True, omit_defaults=True):
    """A message that ended. `result` is there if it is JSON, and not long."""

    id: str
    scope: str
    queue: str
    type: str
    state: State
    attempts: int
    created_at: Time
    ended_at: Time
    name: str | None = None
    reason: str | None = None
    error: str | None = None
    result: Json = UNSET
    correlation_id: str | None = None
    parent_id: str | None = None


class Callback(Struct, frozen=True):
    """The body of a callback; `type` is `message.` and the state."""

    type: str
    timestamp: Time
    data: CallbackResult


class CallbackSecret(Struct, frozen=True, omit_defaults=True):
    """Callbacks are signed with `secret`, and with `previous` until a moment."""

    secret: str
    previous: str | None = None
    until: Time | None = None


def make_callback(record: Record, row: HistoryRow, queue: Queue, result: bytes | None) -> Callback:
    message, meta = record.message, record.message.meta
    shown = result and len(result) <= MAX_RESULT_BYTES and is_json(result)
    outcome = CallbackResult(
        str(message.id),
        queue.scope.name,
        queue.name,
        message.type,
        row.state,
        row.attempts,
        to_datetime(message.created_at),
        to_datetime(row.at),
        meta.name,
        row.reason,
        row.error,
        Raw(result) if result and shown else UNSET,
        meta.correlation_id,
        None if meta.parent_id is None else str(meta.parent_id),
    )
    return Callback(f"message.{row.state}", to_datetime(row.at), outcome)


def make_secret_view(secrets: SigningSecrets) -> CallbackSecret:
    return CallbackSecret(secrets.current, secrets.previous, to_optional_datetime(secrets.until))
