"""Lists the fields of a message that rules see."""

import msgspec

from penstock.model.message import Draft, HistoryRow, Record
from penstock.model.queue import Queue
from penstock.model.routing import Values


def list_values(draft: Draft, queue: Queue) -> Values:
    """Returns every field but the body."""
    return {
        "message.queue": queue.name,
        "message.scope": queue.scope.name,
        "message.type": draft.type,
        "message.priority": draft.priority,
        "message.size": len(draft.body),
        "message.name": draft.name or "",
        "message.key": draft.ordering_key or "",
        "message.correlation_id": draft.correlation_id or "",
        "message.content_type": draft.content_type,
        "message.labels": draft.labels or {},
        "message.headers": draft.headers or {},
    }


def add_body(values: Values, body: bytes, content_type: str) -> None:
    """Adds the body if it is JSON. Otherwise conditions that read it do not match."""
    media = content_type.partition(";")[0].strip()
    if media.endswith(("/json", "+json")):
        try:
            values["message.body"] = msgspec.json.decode(body)
        except msgspec.DecodeError:
            return


def add_end_values(values: Values, id: int, ended: HistoryRow | Record) -> None:
    """Adds what only rules on an end know."""
    values |= {
        "message.id": id,
        "message.state": ended.state.value,
        "message.reason": ended.reason or "",
        "message.error": ended.error or "",
        "message.attempts": ended.attempts,
        "message.deliveries": ended.deliveries,
    }


def make_nested_values(draft: Draft, queue: Queue) -> Values:
    """Returns what expressions over a whole message see: `message` with its fields."""
    values = list_values(draft, queue)
    add_body(values, draft.body, draft.content_type)
    return {"message": {name.partition(".")[2]: value for name, value in values.items()}}
