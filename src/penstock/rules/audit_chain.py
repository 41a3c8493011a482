"""The hash chain over the audit log: seals entries, and finds what was changed afterwards.

The hash of an entry covers the hash before it, so a changed entry breaks every later hash.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.model.documents import AuditEntry
from penstock.model.message import MICROS_PER_SECOND, Moment

# The hash before the first entry.
ORIGIN = "0" * 64
# Entries may commit in another order than their ids. After this long none comes late.
LATE_S = 120
UNSEALED_S = 60
RETENTION_S = 365 * 86_400


class Seal(Struct, frozen=True, array_like=True):
    """The hash of one entry. `at` distinguishes retention from removal when the entry is gone."""

    entry_id: int
    at: Moment
    hash: str


class SealSegment(Struct, frozen=True):
    """Consecutive seals, stored as one document. The first one has the number `first`."""

    first: int
    previous: str
    seals: tuple[Seal, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.seals) - 1

    @property
    def end(self) -> tuple[int, str]:
        return self.last, self.seals[-1].hash


class SealHead(Struct, frozen=True):
    """The end of the chain, and which entries it has: all up to `closed`, and those of `recent`.

    `anchor` is number and hash of the last seal that retention removed. It is None until an older
    version's chain is sealed on.
    """

    number: int = 0
    hash: str = ORIGIN
    closed: int = 0
    recent: tuple[tuple[int, Moment], ...] = ()
    anchor: tuple[int, str] | None = None

    def __str__(self) -> str:
        """Returns NUMBER:HASH, which `parse_seal` reads."""
        return f"{self.number}:{self.hash}"


START = SealHead(anchor=(0, ORIGIN))


class FindingKind(StrEnum):
    CHANGED = "changed"
    MISSING = "missing"
    UNSEALED = "unsealed"
    DOUBLED = "doubled"
    # A seal is not where the chain needs it.
    BROKEN = "broken"


class Finding(Struct, frozen=True):
    """One fault of the audit log. `number` is that of the seal, if it has one."""

    kind: FindingKind
    entry_id: int = 0
    number: int = 0


class AuditReport(Struct, frozen=True):
    """The result of a verification: how many entries were compared, and what is wrong."""

    sealed: int
    head: SealHead
    findings: list[Finding]

    @property
    def intact(self) -> bool:
        return not self.findings


def hash_entry(previous: str, entry: AuditEntry) -> str:
    row = (
        entry.id, entry.at, entry.tenant, entry.subject, entry.verb, entry.target, entry.scope,
        entry.request_id, entry.detail,
    )  # fmt: skip
    return sha256(previous.encode() + msgspec.json.encode(row)).hexdigest()


def find_unsealed(head: SealHead, entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    sealed = {entry_id for entry_id, _ in head.recent}
    return [each for each in entries if each.id > head.closed and each.id not in sealed]


def seal_entries(head: SealHead, entries: Sequence[AuditEntry]) -> SealSegment:
    seals, previous = [], head.hash
    for entry in entries:
        previous = hash_entry(previous, entry)
        seals.append(Seal(entry.id, entry.at, previous))
    return SealSegment(head.number + 1, head.hash, tuple(seals))


def advance_head(head: SealHead, segment: SealSegment, now: Moment) -> SealHead:
    recent = sorted((*head.recent, *((seal.entry_id, seal.at) for seal in segment.seals)))
    number, hash = segment.end
    return close_head(replace(head, number=number, hash=hash, recent=tuple(recent)), now)


def close_head(head: SealHead, now: Moment) -> SealHead:
    """Forgets the ids of old entries: no entry below them can still appear."""
    late = now - LATE_S * MICROS_PER_SECOND
    old = [entry_id for entry_id, at in head.recent if at < late]
    if not old:
        return head
    closed = max(head.closed, *old)
    return replace(
        head, closed=closed, recent=tuple(each for each in head.recent if each[0] > closed)
    )


def check_link(end: tuple[int, str] | None, segment: SealSegment) -> list[Finding]:
    """Checks that a segment continues the one before, or the last one that retention removed."""
    if end is None:
        return []
    fits = (segment.first - 1, segment.previous) == end
    return [] if fits else [Finding(FindingKind.BROKEN, number=segment.first)]


def check_head(head: SealHead, last: SealSegment | None) -> list[Finding]:
    """The head is one step with the last segment, so removed segments show here."""
    end = head.anchor if last is None else last.end
    if (head.number, head.hash) == (end or (0, ORIGIN)):
        return []
    kind = FindingKind.MISSING if last is None else FindingKind.BROKEN
    return [Finding(kind, number=head.number)]


def check_known(segment: SealSegment, number: int, hash: str) -> list[Finding]:
    """Compares a seal that was kept elsewhere, if the segment has it."""
    if not segment.first <= number <= segment.last:
        return []
    seal = segment.seals[number - segment.first]
    return [] if seal.hash == hash else [Finding(FindingKind.CHANGED, seal.entry_id, number)]


def check_kept(head: SealHead, first: SealSegment | None, number: int, hash: str) -> list[Finding]:
    """Reports a seal that was kept elsewhere and is not stored: nothing is proven by it."""
    if first is not None and first.first <= number <= head.number:
        return []
    if head.anchor is not None and number == head.anchor[0]:
        return [] if hash == head.anchor[1] else [Finding(FindingKind.CHANGED, number=number)]
    return [Finding(FindingKind.MISSING, number=number)]


def check_segment(
    segment: SealSegment, entries: Mapping[int, AuditEntry], now: Moment
) -> list[Finding]:
    """Compares the seals of a segment with the stored entries."""
    findings = []
    previous = segment.previous
    for number, seal in enumerate(segment.seals, segment.first):
        entry = entries.get(seal.entry_id)
        if entry is None:
            if seal.at >= now - RETENTION_S * MICROS_PER_SECOND:
                findings.append(Finding(FindingKind.MISSING, seal.entry_id, number))
        elif hash_entry(previous, entry) != seal.hash:
            findings.append(Finding(FindingKind.CHANGED, seal.entry_id, number))
        previous = seal.hash
    return findings


def is_unsealed(entry: AuditEntry, sealed: set[int], now: Moment) -> bool:
    return entry.id not in sealed and entry.at < now - UNSEALED_S * MICROS_PER_SECOND


def parse_seal(text: str) -> tuple[int, str]:
    """Parses NUMBER:HASH, as `penstock audit seal` prints it."""
    number, _, hash = text.partition(":")
    if not number.isdecimal() or len(hash) != len(ORIGIN):
        raise InvalidInput(
            f"seal {text[:80]!r} is not NUMBER:HASH, as `penstock audit seal` prints"
        )
    return int(number), hash
