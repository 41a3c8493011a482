"""Shows a message that retention removed from the store, from the lake."""

import time
from typing import TYPE_CHECKING, Any

from penstock.cli.message_details import (
    describe_message,
    list_content,
    list_details,
    print_timeline,
)
from penstock.cli.output import print_details, print_json
from penstock.errors import InvalidInput, NotFound
from penstock.extras import require_extra
from penstock.model.queue import Queue, Scope

if TYPE_CHECKING:
    from penstock.pipeline.lake.lookup import LakeMessage


def show_archived(place: str, reference: str, as_json: bool) -> None:
    if not (reference.isascii() and reference.isdecimal() and len(reference) < 20):
        raise InvalidInput(f"{reference[:100]!r} is not an id; a lake is searched by id")
    with require_extra("pipeline"):
        from penstock.pipeline.lake.lake import find
        from penstock.pipeline.lake.lookup import find_message
    found = find_message(find(place), int(reference))
    if found is None:
        raise NotFound(f"lake {place!r} has no message with id {reference}")
    if as_json:
        print_json(describe_archived(found))
        return
    record = found.record
    # The settings of the queue are not in the lake, so neither are its limits.
    known = {"attempts": record.attempts, "deliveries": record.deliveries}
    details = list_details(record, make_queue(found), time.time_ns() // 1_000)
    print_details(
        [
            *((name, known.get(name, value)) for name, value in details),
            *list_content(record, None, None),
        ]
    )
    print_timeline(record)
    print(f"\nbatch {found.batch} of lake {place}")


def describe_archived(found: "LakeMessage") -> dict[str, Any]:
    described = describe_message(found.record, make_queue(found), None)
    for name in ("queue_state", "max_attempts", "max_deliveries", "lease", "result"):
        del described[name]
    return described | {"scope": found.scope, "tenant": found.tenant, "batch": found.batch}


def make_queue(found: "LakeMessage") -> Queue:
    id = found.record.message.queue_id
    return Queue(id, Scope(0, found.tenant or "", found.scope or ""), found.queue or str(id))
