"""Encodes entries for the publish script and decodes its outcomes."""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter

from penstock.model.message import PLAIN, Flag, Meta
from penstock.model.store_types import Entry, Published
from penstock.model.uniform_batch import UniformBatch
from penstock.model.units import Unit
from penstock.stores.redis.codec import (
    NONE,
    compute_digest,
    digest_correlation,
    make_document_field,
    make_field,
)
from penstock.stores.sql.publish import NOT_PUBLISHED, refuse_all
from penstock.stores.sql.records import decode_meta_json

# Every field of an entry except its body.
HEADING = attrgetter(
    "queue_id", "type", "priority", "rank", "basis", "delay", "run_at", "ttl", "expires_at",
    "flags", "meta", "name", "ordering_key", "dedup", "max_depth", "unit", "after",
)  # fmt: skip


def make_arguments(entries: Sequence[Entry]) -> list[bytes | str | int]:
    """Encodes entries in groups that differ only in their bodies."""
    words: list[bytes | str | int] = []
    for group in group_entries(entries):
        prefix = make_preface(group.heading)
        words += make_heading(group.heading)
        words.append(len(group))
        words += [prefix + body for body in group.bodies]
        if group.heading.unit is not None:
            words += make_unit(group.heading.unit)
    return words


def group_entries(entries: Sequence[Entry]) -> Iterator[UniformBatch]:
    if isinstance(entries, UniformBatch):
        yield entries
        return
    for _, run in groupby(entries, HEADING):
        group = list(run)
        if group[0].unit is None:
            yield UniformBatch(group[0], [entry.body for entry in group])
        else:
            yield from (UniformBatch(entry, [entry.body]) for entry in group)


def make_unit(unit: Unit) -> list[bytes | str | int]:
    """Encodes what follows an entry with a unit: how it ends, what it expects, its copies."""
    expected: list[bytes | str | int] = []
    for kind, name, version in unit.expects:
        expected += (make_document_field(kind, name), version)
    copies = list(group_entries(unit.copies))
    words = (make_arguments(copy) for copy in copies)
    return [
        unit.state or "", unit.reason or "", len(unit.expects), *expected, len(copies),
        *chain.from_iterable(words),
    ]  # fmt: skip


def make_preface(entry: Entry) -> bytes:
    kind, meta = entry.type.encode(), (entry.meta or "").encode()
    lengths = b"%08x %d %d %d " % (entry.queue_id, entry.priority, len(kind), len(meta))
    return lengths + kind + meta


def make_heading(entry: Entry) -> list[bytes | str | int]:
    """Encodes what a group shares: numbers, type, dedup key, name."""
    meta = PLAIN if entry.meta is None else decode_meta_json(entry.meta)
    numbers = (
        b"%08x" % entry.queue_id, entry.rank, entry.basis, to_micros(entry.delay),
        encode_entry(entry.run_at), NONE if entry.ttl is None else to_micros(entry.ttl),
        encode_entry(entry.expires_at), entry.flags, encode_entry(entry.max_depth), entry.overflow,
        NONE if entry.ordering_key is None else compute_digest(entry.queue_id, entry.ordering_key),
        encode_lease(entry, meta), *encode_dedup(entry), encode_correlation(meta) or NONE,
        NONE if entry.unit is None else 1,
    )  # fmt: skip
    text = b" ".join(word if isinstance(word, bytes) else str(word).encode() for word in numbers)
    key = b"" if entry.dedup is None else make_field(entry.keys_queue_id, entry.dedup.key)
    return [
        text,
        entry.type,
        key,
        b"" if entry.name is None else make_field(entry.keys_queue_id, entry.name),
    ]


def encode_entry(number: int | None) -> bytes | int:
    return NONE if number is None else number


def to_micros(seconds: float) -> int:
    return int(seconds * 1_000_000)


def encode_lease(entry: Entry, meta: Meta) -> bytes | int:
    return to_micros(meta.lease or 0) if entry.flags & Flag.OWN_LEASE else NONE


def encode_dedup(entry: Entry) -> tuple[bytes | str | int, bytes | int]:
    """Encodes the digest and window of a dedup key."""
    if entry.dedup is None:
        return NONE, NONE
    window = entry.dedup.window
    return entry.dedup.digest.hex(), NONE if window is None else to_micros(window)


def encode_correlation(meta: Meta) -> bytes | None:
    return None if meta.correlation_id is None else digest_correlation(meta.correlation_id)


def decode_outcomes(reply: Sequence[bytes]) -> list[Published]:
    found: list[Published] = []
    for text in reply:
        kind, _, rest = text.partition(b" ")
        if kind == b"=":
            first, count = rest.split(b" ")
            found += [Published(id) for id in range(int(first, 16), int(first, 16) + int(count))]
        else:
            found.append(decode_outcome(kind, rest))
    return found


def decode_outcome(kind: bytes, rest: bytes) -> Published:
    if kind == b"d":
        return Published(int(rest, 16), duplicate=True)
    if not kind:
        return NOT_PUBLISHED
    if kind.isupper():
        return Published(0, code=kind.decode())
    return Published(int(kind, 16))


def refuse_unless_all(found: list[Published]) -> list[Published]:
    return refuse_all(found) if any(each.code for each in found) else found
