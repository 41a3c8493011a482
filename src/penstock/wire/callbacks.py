"""What is posted to whoever asked, and the secrets that it is signed with."""

from msgspec import UNSET, Raw, Struct

from penstock.callback import Secrets
from penstock.message import HistoryRow, Record, State
from penstock.queue import Queue
from penstock.wire.texts import Json, Time, is_json, time_at, time_of

# A longer result is fetched by whoever wants it.
MOST_RESULT = 65_536


class Outcome(Struct, frozen=True, omit_defaults=True):
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
    data: Outcome


class CallbackSecret(Struct, frozen=True, omit_defaults=True):
    """Callbacks are signed with `secret`, and with `previous` until a moment."""

    secret: str
    previous: str | None = None
    until: Time | None = None


def callback_of(record: Record, row: HistoryRow, queue: Queue, result: bytes | None) -> Callback:
    message, meta = record.message, record.message.meta
    shown = result and len(result) <= MOST_RESULT and is_json(result)
    outcome = Outcome(
        str(message.id),
        queue.scope.name,
        queue.name,
        message.type,
        row.state,
        row.attempts,
        time_at(message.created_at),
        time_at(row.at),
        meta.name,
        row.reason,
        row.error,
        Raw(result) if result and shown else UNSET,
        meta.correlation_id,
        None if meta.parent_id is None else str(meta.parent_id),
    )
    return Callback(f"message.{row.state}", time_at(row.at), outcome)


def secret_of(secrets: Secrets) -> CallbackSecret:
    return CallbackSecret(secrets.current, secrets.previous, time_of(secrets.until))
