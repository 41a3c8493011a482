"""The hash chain over the audit log: entries are sealed once, and every change shows."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from penstock.broker.audit import HEAD_KIND, SEGMENT_KIND, AuditLog, AuditQuery
from penstock.model.documents import AuditEntry, Document, acting
from penstock.rules.audit_chain import Finding, FindingKind
from tests.conformance.stage import DAY, Stage

pytestmark = pytest.mark.anyio


def act(subject: str, verb: str = "changed", tenant: str = "default") -> AuditEntry:
    return AuditEntry(
        subject=subject, tenant=tenant, verb=verb, target=f"/v1/{subject}", request_id=subject
    )


async def record(stage: Stage, *subjects: str) -> AuditLog:
    await stage.store.record([act(subject) for subject in subjects])
    return AuditLog(stage.store)


async def test_entries_are_listed_by_id_from_a_place_on(stage: Stage) -> None:
    await record(stage, "a", "b", "c")
    first, second, third = await stage.store.acts_after(0, 10)
    assert [each.subject for each in (first, second, third)] == ["a", "b", "c"]
    assert await stage.store.acts_after(first.id, 1) == [second]
    assert await stage.store.acts_after(third.id, 10) == []


async def test_every_entry_is_sealed_once(stage: Stage) -> None:
    log = await record(stage, "a", "b")
    assert await log.seal() == 2
    assert await log.seal() == 0
    await record(stage, "c")
    await stage.travel(DAY)
    await record(stage, "d")
    assert [await log.seal(), await log.seal()] == [2, 0]
    report = await log.verify()
    assert (report.intact, report.sealed, report.head.number) == (True, 4, 4)


async def test_two_processes_that_seal_at_once_make_one_chain(stage: Stage) -> None:
    log = await record(stage, *"abcdef")
    other = AuditLog(stage.store)
    for _ in range(5):
        await asyncio.gather(log.seal(), other.seal())
        await record(stage, "more")
    while await log.seal():
        pass
    report = await log.verify()
    assert (report.findings, report.sealed) == ([], 11)


async def test_sealing_adds_no_entry(stage: Stage) -> None:
    log = await record(stage, "a")
    token = acting.set(act("operator"))
    assert [await log.seal(), await log.seal()] == [1, 0]
    acting.reset(token)
    assert len(await stage.store.acts()) == 1


async def test_a_changed_seal_is_named(stage: Stage) -> None:
    log = await record(stage, "a", "b", "c")
    await log.seal()
    (segment,) = await stage.store.documents(SEGMENT_KIND)
    await replace_hash(stage, segment, 1)
    entry = (await stage.store.acts_after(0, 10))[1]
    findings = (await log.verify()).findings
    assert findings[0] == Finding(FindingKind.CHANGED, entry.id, 2)


async def replace_hash(stage: Stage, segment: Document, place: int) -> None:
    content = msgspec.json.decode(segment.body)
    content["seals"][place][2] = "f" * 64
    body = msgspec.json.encode(content)
    await stage.store.save_documents([Document(kind=SEGMENT_KIND, name=segment.name, body=body)])


async def test_removed_seals_break_the_chain(stage: Stage) -> None:
    log = await record(stage, "a")
    for subject in ("b", "c"):
        await log.seal()
        await record(stage, subject)
    await log.seal()
    segments = await stage.store.documents(SEGMENT_KIND)
    await stage.store.delete_documents(SEGMENT_KIND, [segments[1].name])
    await stage.travel(DAY)
    kinds = [each.kind for each in (await log.verify()).findings]
    assert kinds == [FindingKind.BROKEN, FindingKind.UNSEALED]
    await stage.store.delete_documents(SEGMENT_KIND, [each.name for each in segments])
    assert (await log.verify()).findings[0] == Finding(FindingKind.MISSING, number=3)


async def test_an_entry_that_stays_unsealed_is_named(stage: Stage) -> None:
    log = await record(stage, "a")
    await log.seal()
    await record(stage, "b")
    assert (await log.verify()).intact
    await stage.travel(2 * 60)
    entry = (await stage.store.acts_after(0, 10))[1]
    assert (await log.verify()).findings == [Finding(FindingKind.UNSEALED, entry.id)]


async def test_a_seal_kept_elsewhere_proves_the_chain(stage: Stage) -> None:
    log = await record(stage, "a", "b")
    await log.seal()
    head = await log.head()
    await record(stage, "c")
    await log.seal()
    assert (await log.verify((head.number, head.hash))).intact
    assert not (await log.verify((head.number, "f" * 64))).intact
    assert not (await log.verify((99, head.hash))).intact


async def test_retention_removes_entries_and_seals_from_the_front(stage: Stage) -> None:
    log = await record(stage, "a")
    await log.seal()
    await stage.travel(200 * DAY)
    await record(stage, "b")
    await log.seal()
    await stage.travel(200 * DAY)
    assert await stage.store.sweep_keys(100) == 1
    assert (await log.verify()).intact
    assert await log.prune() == 1
    report = await log.verify()
    assert (report.intact, report.sealed, report.head.number) == (True, 1, 2)


async def test_the_oldest_entries_cannot_be_removed_with_their_seals(stage: Stage) -> None:
    log = await record(stage, "a")
    await log.seal()
    kept = await log.head()
    await record(stage, "b")
    await log.seal()
    (segment, _) = await stage.store.documents(SEGMENT_KIND)
    await stage.store.delete_documents(SEGMENT_KIND, [segment.name])
    assert (await log.verify()).findings[0] == Finding(FindingKind.BROKEN, number=2)
    findings = (await log.verify((kept.number, kept.hash))).findings
    assert Finding(FindingKind.MISSING, number=1) in findings


async def test_the_last_seal_that_retention_removed_is_the_anchor(stage: Stage) -> None:
    log = await record(stage, "a")
    await log.seal()
    oldest = await log.head()
    await record(stage, "b")
    await log.seal()
    removed = await log.head()
    await stage.travel(400 * DAY)
    await record(stage, "c")
    await log.seal()
    await stage.store.sweep_keys(100)
    assert await log.prune() == 2
    assert (await log.verify((removed.number, removed.hash))).intact
    assert (await log.verify((2, "f" * 64))).findings == [Finding(FindingKind.CHANGED, number=2)]
    assert (await log.verify((oldest.number, oldest.hash))).findings == [
        Finding(FindingKind.MISSING, number=1)
    ]


async def test_a_chain_without_an_anchor_verifies_and_gets_one(stage: Stage) -> None:
    """Older versions removed seals and stored no anchor."""
    log = await record(stage, "a")
    await log.seal()
    await stage.travel(400 * DAY)
    await record(stage, "b")
    await log.seal()
    await stage.store.sweep_keys(100)
    (first, second) = await stage.store.documents(SEGMENT_KIND)
    await stage.store.delete_documents(SEGMENT_KIND, [first.name])
    (head,) = await stage.store.documents(HEAD_KIND)
    older = msgspec.json.decode(head.body)
    del older["anchor"]
    await stage.store.save_documents([replace(head, body=msgspec.json.encode(older))])
    assert (await log.verify()).findings == []
    await record(stage, "c")
    await log.seal()
    assert (await log.verify()).findings == []
    await stage.store.delete_documents(SEGMENT_KIND, [second.name])
    assert (await log.verify()).findings[0] == Finding(FindingKind.BROKEN, number=3)


async def test_the_log_is_filtered(stage: Stage) -> None:
    await stage.store.record([act("ada"), act("bob", "refused"), act("ada", tenant="other")])
    await stage.travel(DAY)
    await record(stage, "ada")
    log = AuditLog(stage.store)
    now = await stage.store.now()

    async def count(**filters: object) -> int:
        query = msgspec.convert(filters, AuditQuery)
        return len((await log.find(query)).entries)

    assert await count() == 4
    assert await count(tenant="default") == 3
    assert await count(subject="ada") == 3
    assert await count(verb="refused") == await count(refused=True) == 1
    assert await count(refused=False, target="/bo") == 0
    assert await count(request_id="bob", target="bo") == 1
    assert await count(since=now - 3_600_000_000) == 1
    assert await count(until=now - 3_600_000_000) == 3
    page = await log.find(AuditQuery(limit=3))
    assert page.before is not None
    assert len((await log.find(AuditQuery(before=page.before))).entries) == 1
