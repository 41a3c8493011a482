"""Lists the fields of a message that rules see."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from penstock.model.message import Draft, HistoryRow, Record
from penstock.model.queue import Queue
from penstock.model.routing import Values

GETTERS: dict[str, Callable[[Draft, Queue], Any]] = {
    "queue": lambda draft, queue: queue.name,
    "scope": lambda draft, queue: queue.scope.name,
    "type": lambda draft, queue: draft.type,
    "priority": lambda draft, queue: draft.priority,
    "size": lambda draft, queue: len(draft.body),
    "name": lambda draft, queue: draft.name or "",
    "key": lambda draft, queue: draft.ordering_key or "",
    "correlation_id": lambda draft, queue: draft.correlation_id or "",
    "content_type": lambda draft, queue: draft.content_type,
    "labels": lambda draft, queue: draft.labels or {},
    "headers": lambda draft, queue: draft.headers or {},
}
OF_ENDS = frozenset(("id", "state", "reason", "error", "attempts", "deliveries"))
ALL_FIELDS = OF_ENDS.union(GETTERS, ("body",))


def list_values(draft: Draft, queue: Queue, names: Iterable[str] = GETTERS) -> Values:
    """Returns the fields with these names. Fields of ends and the body are added later."""
    return {f"message.{name}": GETTERS[name](draft, queue) for name in names if name in GETTERS}


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
