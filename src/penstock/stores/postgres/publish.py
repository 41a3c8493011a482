"""Publishes plain entries as sets."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from operator import attrgetter, itemgetter
from typing import Any

from penstock.model.message import Flag, State
from penstock.model.store_types import Entry, Published
from penstock.model.uniform_batch import UniformBatch, find_uniform, has_heading
from penstock.model.units import PARENT_TEXT, STALE, Unit

ID = itemgetter(0)
USUALLY = attrgetter("basis", "delay", "run_at", "ttl", "expires_at")
USUAL = ("zero", 0.0, None, None, None)
# Fewer are not worth a statement of their own.
MIN_AWAITED = 50


def to_micros(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1_000_000)


def make_call(entries: Sequence[Entry]) -> tuple[str, dict[str, Any]]:
    """Returns the cheapest statement for these plain entries, and its values."""
    first = entries[0]
    if len(entries) == 1 and is_usual(first):
        return "publish_one", {**make_heading(first), "body": first.body}
    entries = find_uniform(entries)
    if isinstance(entries, UniformBatch) and is_usual(entries.heading):
        return "publish_uniform", make_heading(entries.heading) | {"bodies": entries.bodies}
    if not all(map(is_usual, entries)):
        return "publish_mixed", make_mixed_call(entries) | make_timed_call(entries)
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


def make_keyed_call(entries: Sequence[Entry]) -> tuple[str, dict[str, Any]]:
    """Returns the cheapest statement for entries with flags and ordering keys, and its values."""
    values = {
        **make_mixed_call(entries),
        "flags": [entry.flags for entry in entries],
        "keys": [entry.ordering_key for entry in entries],
    }
    if all(is_usual(entry) and not entry.flags & Flag.HELD for entry in entries):
        return "publish_keyed_now", values | {"firsts": find_firsts(entries)}
    return "publish_keyed", values | make_timed_call(entries)


def find_firsts(entries: Sequence[Entry]) -> list[bool]:
    """Returns which entries are the first ones of their ordering keys."""
    lines = [(entry.queue_id, entry.ordering_key) for entry in entries]
    first: dict[tuple[int, str | None], int] = {}
    for place, line in enumerate(lines):
        first.setdefault(line, place)
    return [first[line] == place for place, line in enumerate(lines)]


def split_awaited(entries: Sequence[Entry]) -> tuple[UniformBatch | None, Sequence[Entry]]:
    """Splits off the children of a fan-out that come first and differ only in their bodies."""
    first = entries[0]
    if first.flags != Flag.AWAITED or not is_usual(first):
        return None, entries
    alike = list(takewhile(lambda entry: has_heading(entry, first), entries))
    if len(alike) < MIN_AWAITED:
        return None, entries
    return UniformBatch(first, [entry.body for entry in alike]), entries[len(alike) :]


def make_fanout_call(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Returns the values of publish_fanout, or None if it cannot write these entries."""
    units = [entry.unit for entry in entries]
    if not all(map(is_fanout, entries, units)):
        return None
    copies = [
        (place, copy)
        for place, unit in enumerate(units)
        for copy in (unit.copies if unit is not None else ())
    ]
    guards = [unit.expects[0] for unit in units if unit is not None]
    return {
        **make_mixed_call(entries),
        "places": list(range(len(entries))),
        "reasons": [unit.reason for unit in units if unit is not None],
        "kinds": [kind for kind, _, _ in guards],
        "names": [name for _, name, _ in guards],
        "versions": [version for _, _, version in guards],
        "copy_places": [place for place, _ in copies],
        "copy_queue_ids": [copy.queue_id for _, copy in copies],
        "copy_priorities": [copy.priority for _, copy in copies],
        "copy_ranks": [copy.rank for _, copy in copies],
        "copy_metas": [copy.meta for _, copy in copies],
        "parent_text": PARENT_TEXT,
    }


def is_fanout(entry: Entry, unit: Unit | None) -> bool:
    """True for an entry that completes at once and only has plain copies of its body."""
    if unit is None or unit.state is not State.COMPLETED or len(unit.expects) != 1:
        return False
    bare = (entry.flags, entry.dedup, entry.name) == (0, None, None)
    return bare and is_usual(entry) and all(is_plain_copy(copy, entry) for copy in unit.copies)


def is_plain_copy(copy: Entry, entry: Entry) -> bool:
    alike = copy.body is entry.body and copy.type == entry.type
    return alike and copy.plain and is_usual(copy)


def make_fanout_outcomes(count: int, rows: Iterable[Any]) -> list[Published]:
    ids = dict(map(tuple, rows))
    return [Published(ids[at]) if at in ids else Published(0, code=STALE) for at in range(count)]


def make_published(rows: Iterable[Any]) -> list[Published]:
    """Builds the outcomes: ids are in the order of the entries."""
    return list(map(Published, sorted(map(ID, rows))))
