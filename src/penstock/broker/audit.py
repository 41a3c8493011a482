"""Reads, seals and verifies the audit log."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.model.changes import Change
from penstock.model.documents import AuditEntry, Document, acting
from penstock.model.message import MICROS_PER_SECOND, NEVER, Moment
from penstock.rules import audit_chain
from penstock.rules.audit_chain import AuditReport, Finding, FindingKind, SealHead, SealSegment
from penstock.rules.audit_changes import describe_changes
from penstock.store import Store

HEAD_KIND = "seal_head"
SEGMENT_KIND = "seal"
PAGE_SIZE = 1_000
MAX_SCANNED = 20_000
MAX_FINDINGS = 1_000
# Refused requests are recorded under this verb.
REFUSED = "refused"
decode_head = msgspec.json.Decoder(SealHead).decode
decode_segment = msgspec.json.Decoder(SealSegment).decode
encode = msgspec.json.Encoder().encode


def note_changes(before: Any, after: Any) -> None:
    """Records which fields the next change of the current request changes, if it is audited."""
    if (act := acting.get()) is not None:
        acting.set(replace(act, detail=describe_changes(before, after)))


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Selects audit entries, newest first. `before` is the last id of the previous page."""

    tenant: str | None = None
    subject: str | None = None
    verb: str | None = None
    target: str | None = None
    request_id: str | None = None
    refused: bool | None = None
    since: Moment = 0
    until: Moment = NEVER
    before: int = NEVER
    limit: int = 100

    def matches(self, entry: AuditEntry) -> bool:
        return (
            self.subject in (None, entry.subject)
            and self.verb in (None, entry.verb)
            and (self.target is None or self.target in entry.target)
            and self.request_id in (None, entry.request_id)
            and self.refused in (None, entry.verb == REFUSED)
            and self.since <= entry.at < self.until
        )


class AuditResult(Struct, frozen=True):
    """Entries, and the id to continue before. None if everything was read."""

    entries: list[AuditEntry]
    before: int | None


class AuditLog:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def find(
        self, query: AuditQuery, visible: Callable[[AuditEntry], bool] = lambda entry: True
    ) -> AuditResult:
        """Lists matching entries that are `visible` to the caller.

        It stops after 20,000 rows and says where to continue.
        """
        found: list[AuditEntry] = []
        before, scanned = query.before, 0
        while scanned < MAX_SCANNED:
            page = await self.store.acts(query.tenant, before, PAGE_SIZE)
            for entry in page:
                if entry.at < query.since:
                    return AuditResult(found, None)
                if query.matches(entry) and visible(entry):
                    found.append(entry)
                    if len(found) == query.limit:
                        return AuditResult(found, entry.id)
            if len(page) < PAGE_SIZE:
                return AuditResult(found, None)
            scanned += len(page)
            before = page[-1].id
        return AuditResult(found, before)

    async def seal(self) -> int:
        """Seals new entries, at most one page. Returns how many; 0 if another process did."""
        stored = await self.store.document(HEAD_KIND, HEAD_KIND)
        head = decode_head(stored.body) if stored else audit_chain.START
        entries = await self._read_unsealed(head)
        if not entries:
            return 0
        if head.anchor is None:
            head = replace(head, anchor=await self._find_anchor())
        segment = audit_chain.seal_entries(head, entries)
        advanced = audit_chain.advance_head(head, segment, await self.store.now())
        version = stored.version if stored else 0
        # Sealing records no entry of its own, or a caller that seals would never be done.
        acting.set(None)
        saved = await self.store.save_documents([
            Document(kind=HEAD_KIND, name=HEAD_KIND, body=encode(advanced), version=version),
            Document(kind=SEGMENT_KIND, name=name_segment(segment.first), body=encode(segment),
                     version=0),
        ])  # fmt: skip
        return len(entries) if all(saved) else 0

    async def _find_anchor(self) -> tuple[int, str] | None:
        """Older versions stored none: the chain begins with the first seal that is left."""
        async for segment in self.read_segments():
            return segment.first - 1, segment.previous
        return None

    async def _read_unsealed(self, head: SealHead) -> list[AuditEntry]:
        """Reads on past sealed pages, or a page of recent entries would hide new ones."""
        after = head.closed
        while page := await self.store.acts_after(after, PAGE_SIZE):
            if unsealed := audit_chain.find_unsealed(head, page):
                return unsealed
            after = page[-1].id
        return []

    async def head(self) -> SealHead:
        stored = await self.store.document(HEAD_KIND, HEAD_KIND)
        return decode_head(stored.body) if stored else audit_chain.START

    async def verify(self, known: tuple[int, str] | None = None) -> AuditReport:
        """Compares all entries with the chain. `known` is a seal that was kept elsewhere."""
        now, head = await self.store.now(), await self.head()
        findings: list[Finding] = []
        sealed: set[int] = set()
        first: SealSegment | None = None
        previous: SealSegment | None = None
        async for segment in self.read_segments():
            # A process may seal more in the meantime.
            if segment.first > head.number:
                break
            if first is None or previous is None:
                first = segment
                findings += audit_chain.check_link(await self._read_anchor(head, first), first)
            else:
                findings += audit_chain.check_link(previous.end, segment)
            findings += audit_chain.check_segment(segment, await self.read_entries(segment), now)
            findings += note_doubled(segment, sealed)
            if known is not None:
                findings += audit_chain.check_known(segment, *known)
            previous = segment
        findings += audit_chain.check_head(head, previous)
        if known is not None:
            findings += audit_chain.check_kept(head, first, *known)
        async for entry in self._read_all():
            if audit_chain.is_unsealed(entry, sealed, now):
                findings.append(Finding(FindingKind.UNSEALED, entry.id))
        return AuditReport(len(sealed), head, findings[:MAX_FINDINGS])

    async def _read_anchor(self, head: SealHead, first: SealSegment) -> tuple[int, str] | None:
        """Reads it again if retention may have removed seals since the head was read."""
        if not audit_chain.check_link(head.anchor, first):
            return head.anchor
        return (await self.head()).anchor

    async def read_segments(self, after: int = 0) -> AsyncIterator[SealSegment]:
        """Reads the segments that begin after a seal, in order."""
        name = name_segment(after)
        while page := await self.store.documents(SEGMENT_KIND, name, 100):
            for document in page:
                yield decode_segment(document.body)
            name = page[-1].name

    async def read_entries(self, segment: SealSegment) -> dict[int, AuditEntry]:
        """Returns the stored entries of a segment by their ids."""
        ids = [seal.entry_id for seal in segment.seals]
        found: dict[int, AuditEntry] = {}
        after, last = min(ids) - 1, max(ids)
        while after < last and (page := await self.store.acts_after(after, PAGE_SIZE)):
            found |= {entry.id: entry for entry in page if entry.id <= last}
            after = page[-1].id
        return found

    async def _read_all(self) -> AsyncIterator[AuditEntry]:
        after = 0
        while page := await self.store.acts_after(after, PAGE_SIZE):
            for entry in page:
                yield entry
            after = page[-1].id

    async def prune(self) -> int:
        """Deletes segments whose entries were removed by retention. The last one is the anchor."""
        oldest = await self.store.now() - audit_chain.RETENTION_S * MICROS_PER_SECOND
        stored = await self.store.document(HEAD_KIND, HEAD_KIND)
        dropped: list[SealSegment] = []
        for document in await self.store.documents(SEGMENT_KIND, "", 100):
            segment = decode_segment(document.body)
            if max(seal.at for seal in segment.seals) >= oldest:
                break
            dropped.append(segment)
        if stored is None or not dropped:
            return 0
        head = replace(decode_head(stored.body), anchor=dropped[-1].end)
        deletes = tuple((SEGMENT_KIND, name_segment(each.first)) for each in dropped)
        change = Change(guards=(replace(stored, body=encode(head)),), deletes=deletes)
        return 0 if await self.store.advance(change) is None else len(dropped)


def name_segment(first: int) -> str:
    """Returns a name that sorts by number."""
    return f"{first:019}"


def note_doubled(segment: SealSegment, sealed: set[int]) -> list[Finding]:
    """Adds the entries of a segment to those seen, and reports repeated ones."""
    findings = []
    for number, seal in enumerate(segment.seals, segment.first):
        if seal.entry_id in sealed:
            findings.append(Finding(FindingKind.DOUBLED, seal.entry_id, number))
        sealed.add(seal.entry_id)
    return findings
