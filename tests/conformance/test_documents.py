"""What features keep beside the queues, and the record of who did what."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.errors import SlugConflict
from penstock.model.documents import AuditEntry, Document, acting
from penstock.model.message import NEVER, Draft
from penstock.model.queue import Schedule
from penstock.model.store_types import WorkerInfo
from tests.conformance.stage import DAY, Stage

pytestmark = pytest.mark.anyio

SECOND = 1_000_000
ADA = AuditEntry(
    subject="ada", tenant="default", verb="tested", target="here", scope="web", request_id="r1"
)


def paper(name: str, body: bytes = b"{}", **more: int | None) -> Document:
    version, expires_at = more.get("version"), more.get("expires_at") or NEVER
    return Document(kind="paper", name=name, body=body, version=version, expires_at=expires_at)


@contextmanager
def ada() -> Iterator[None]:
    token = acting.set(ADA)
    yield
    acting.reset(token)


async def test_a_document_is_kept_as_it_was_given(stage: Stage) -> None:
    odd = "a b/c:d}{e*\n'\"\\ é 🦊"
    body = bytes(range(256))
    assert await stage.store.save_documents([paper(odd, body)]) == [True]
    assert await stage.store.document("paper", odd) == paper(odd, body, version=1)
    assert await stage.store.document("paper", "other") is None
    assert await stage.store.document("stone", odd) is None


async def test_it_is_there_after_the_store_was_closed(stage: Stage) -> None:
    await stage.store.save_documents([paper("a")])
    again = await stage.reopened()
    assert await again.store.document("paper", "a") == paper("a", version=1)


async def test_only_the_version_one_has_seen_is_replaced(stage: Stage) -> None:
    save = stage.store.save_documents
    assert await save([paper("a", b"1", version=0)]) == [True]
    assert await save([paper("a", b"2", version=0)]) == [False]
    assert await save([paper("a", b"3", version=2), paper("b", version=1)]) == [False, False]
    assert await save([paper("a", b"4", version=1), paper("b", version=0)]) == [True, True]
    assert await save([paper("a", b"5")]) == [True]
    assert await stage.store.document("paper", "a") == paper("a", b"5", version=3)


async def test_of_many_who_saw_the_same_one_replaces_it(stage: Stage) -> None:
    others = [await stage.another() for _ in range(3)]
    for version in range(5):
        tries = [each.store.save_documents([paper("a", version=version)]) for each in others]
        assert sorted(await asyncio.gather(*tries)) == [[False], [False], [True]]


async def test_documents_are_listed_by_name_in_pages(stage: Stage) -> None:
    names = ["", "B", "a", "a b", "é", "ü", "🦊"]
    await stage.store.save_documents([paper(name) for name in reversed(names) if name])
    await stage.store.save_documents([Document(kind="papers", name="x", body=b"")])
    await stage.store.save_documents([Document(kind="pape", name="x", body=b"")])
    listed = [each.name for each in await stage.store.documents("paper")]
    assert listed == names[1:]
    page = await stage.store.documents("paper", limit=2)
    rest = await stage.store.documents("paper", page[-1].name, limit=100)
    assert [each.name for each in [*page, *rest]] == names[1:]


async def test_one_that_has_expired_is_not_there_and_is_swept(stage: Stage) -> None:
    now = await stage.store.now()
    soon = paper("a", expires_at=now + 60 * SECOND)
    await stage.store.save_documents([soon, paper("b"), paper("c", expires_at=now + SECOND)])
    await stage.store.save_documents([paper("c")])
    await stage.travel(61)
    assert await stage.store.document("paper", "a") is None
    assert [each.name for each in await stage.store.documents("paper")] == ["b", "c"]
    assert await stage.store.save_documents([paper("a", version=1)]) == [False]
    assert await stage.store.sweep_keys(100) == 1
    assert await stage.store.sweep_keys(100) == 0


async def test_one_that_has_expired_may_be_made_anew(stage: Stage) -> None:
    await stage.store.save_documents([paper("a", expires_at=await stage.store.now() + SECOND)])
    await stage.travel(2)
    assert await stage.store.save_documents([paper("a", b"new", version=0)]) == [True]
    assert await stage.store.document("paper", "a") == paper("a", b"new", version=1)
    assert await stage.store.sweep_keys(100) == 0


async def test_documents_are_deleted_by_name(stage: Stage) -> None:
    await stage.store.save_documents([paper("a"), paper("b")])
    assert await stage.store.delete_documents("paper", ["a", "z"]) == 1
    assert await stage.store.delete_documents("paper", ["a"]) == 0
    assert await stage.store.delete_documents("paper", []) == 0
    assert [each.name for each in await stage.store.documents("paper")] == ["b"]


async def test_who_acts_is_written_down_with_what_is_done(stage: Stage) -> None:
    with ada():
        await stage.queue("work")
    (act,) = await stage.store.acts()
    assert (act.subject, act.verb, act.target, act.request_id) == ("ada", "tested", "here", "r1")
    assert act.at > 0
    assert act.id > 0


async def test_what_nobody_answers_for_is_not_written_down(stage: Stage) -> None:
    await stage.queue("work")
    assert await stage.store.acts() == []


async def test_what_was_refused_is_not_written_down(stage: Stage) -> None:
    await stage.queue("work")
    with ada():
        with pytest.raises(SlugConflict):
            await stage.queue("work")
        assert await stage.store.purge((await stage.admin.queue("work")).id, ["ready"], 10) == 0
        assert not await stage.store.delete_schedule(999)
        (id,) = await stage.publish_each(1, queue="work")
        await stage.store.redrive([id, 999])
        await stage.store.purge_dead([id])
        await stage.store.cancel([999])
        await stage.store.save_documents([paper("a", version=7)])
        assert await stage.store.delete_documents("paper", ["a"]) == 0
    assert await stage.store.acts() == []


async def test_every_administrative_act_is_written_down(stage: Stage) -> None:
    store = stage.store
    await stage.queue("work")
    queue = await stage.admin.queue("work")
    await store.save_worker(WorkerInfo("w", "host", 1, ("work",)))
    dead = [await stage.dead("work") for _ in range(3)]
    claimed = await stage.publish(queue="work")
    await stage.take("work")
    ready = await stage.publish_each(2, queue="work")
    with ada():
        scope = await store.create_scope("default", "other")
        await store.pause_scope(scope.id, True)
        other = await store.create_queue(scope.id, "other", queue.settings)
        await store.change_queue(other.id, name="another")
        await store.delete_queue(other.id)
        await store.cancel([claimed])
        await store.cancel(ready[:1])
        await store.purge(queue.id, ["ready"], 1)
        await store.redrive(dead[:1])
        await store.purge_dead(dead[1:2])
        await stage.admin.redrive(dead[2], body=b"edited")
        saved = await store.save_schedule(
            Schedule("s", "* * * * *", Draft(), queue_id=queue.id, next_at=NEVER)
        )
        await store.delete_schedule(saved.id)
        await store.stop_worker("w")
        await store.save_documents([paper("a")])
        await store.delete_documents("paper", ["a"])
    assert len(await store.acts()) == 16


async def test_acts_are_told_newest_first_and_by_tenant(stage: Stage) -> None:
    acts = [
        AuditEntry(subject=str(n), tenant="even" if n % 2 == 0 else "odd", verb="v", target="t")
        for n in range(6)
    ]
    await stage.store.record(acts)
    assert [act.subject for act in await stage.store.acts()] == list("543210")
    first = await stage.store.acts("odd", limit=2)
    assert [act.subject for act in first] == ["5", "3"]
    assert [act.subject for act in await stage.store.acts("odd", first[-1].id)] == ["1"]
    assert await stage.store.acts("none") == []


async def test_acts_of_a_year_are_kept(stage: Stage) -> None:
    await stage.store.record([ADA])
    await stage.travel(360 * DAY)
    await stage.store.record([ADA])
    assert await stage.store.sweep_keys(100) == 0
    await stage.travel(6 * DAY)
    assert await stage.store.sweep_keys(100) == 1
    assert len(await stage.store.acts()) == 1
