"""Builds the statement that publishes plain entries."""

from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from penstock.model.store_types import Entry, Published, UniformBatch
from penstock.stores.sql.publish import find_uniform

ID = itemgetter(0)
USUALLY = attrgetter("basis", "delay", "run_at", "ttl", "expires_at")
USUAL = ("zero", 0.0, None, None, None)


def to_micros(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1_000_000)


def make_call(entries: Sequence[Entry]) -> tuple[str, dict[str, Any]]:
    """Returns the cheapest statement for these plain entries, and its values."""
    entries = find_uniform(entries)
    if isinstance(entries, UniformBatch) and is_usual(entries.heading):
        return "publish_uniform", make_heading(entries.heading) | {"bodies": entries.bodies}
    if not all(map(is_usual, entries)):
        return "publish_mixed", make_mixed_call(entries) | make_timed_call(entries)
    if len(entries) == 1:
        return "publish_one", make_heading(entries[0]) | {"body": entries[0].body}
    return "publish_various", make_mixed_call(entries)


def make_heading(entry: Entry) -> dict[str, Any]:
    return {
        "queue_id": entry.queue_id,
        "type": entry.type,
        "priority": entry.priority,
        "rank": entry.rank,
        "meta": entry.meta,
    }


def is_usual(entry: Entry) -> bool:
    """True for entries due now, without expiry, with a rank fixed by priority."""
    return USUALLY(entry) == USUAL


def make_mixed_call(entries: Sequence[Entry]) -> dict[str, Any]:
    return {
        "queue_ids": [entry.queue_id for entry in entries],
        "types": [entry.type for entry in entries],
        "priorities": [entry.priority for entry in entries],
        "ranks": [entry.rank for entry in entries],
        "bodies": [entry.body for entry in entries],
        "metas": [entry.meta for entry in entries],
    }


def make_timed_call(entries: Sequence[Entry]) -> dict[str, Any]:
    """Returns the values that only entries with a due time, expiry or own rank have."""
    return {
        "bases": [entry.basis for entry in entries],
        "delays": [to_micros(entry.delay) for entry in entries],
        "run_ats": [entry.run_at for entry in entries],
        "ttls": [to_micros(entry.ttl) for entry in entries],
        "expires_ats": [entry.expires_at for entry in entries],
    }


def keyed(entries: Sequence[Entry]) -> dict[str, Any]:
    """Returns the values of the statement with flags and ordering keys."""
    return {
        **make_mixed_call(entries),
        **make_timed_call(entries),
        "flags": [entry.flags for entry in entries],
        "keys": [entry.ordering_key for entry in entries],
    }


def make_published(rows: Iterable[Any]) -> list[Published]:
    """Builds the outcomes: ids are in the order of the entries."""
    return list(map(Published, sorted(map(ID, rows))))
