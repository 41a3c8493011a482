"""Documents and messages that are written as one step: all, or nothing."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.model.changes import Change, Changed
from penstock.model.documents import Document
from penstock.model.message import Dedup, Draft
from penstock.model.store_types import Entry, Published
from penstock.rules import drafts
from tests.conformance.stage import Stage
from tests.conformance.test_documents import ADA, ada, paper

pytestmark = pytest.mark.anyio


async def entry(stage: Stage, queue: str = "default", **fields: Any) -> Entry:
    draft = Draft(queue=queue, **fields)
    return drafts.make_entry(draft, await stage.admin.queue(queue))


async def papers(stage: Stage) -> list[tuple[str, bytes, int | None]]:
    return [(each.name, each.body, each.version) for each in await stage.store.documents("paper")]


async def test_a_change_writes_all_of_its_parts(stage: Stage) -> None:
    await stage.store.save_documents([paper("seen"), paper("old"), paper("log", b"0")])
    directory = await stage.store.directory_version()
    changed = await stage.store.advance(
        Change(
            guards=(paper("cursor", b"1", version=0),),
            expects=(("paper", "seen", 1), ("paper", "absent", 0)),
            saves=(paper("log", b"1"), paper("new", b"2", expires_at=2**52)),
            deletes=(("paper", "old"), ("paper", "never")),
            entries=(await entry(stage, body=b"x"), await entry(stage, ordering_key="k")),
        )
    )
    assert changed is not None
    assert changed.written
    assert [await stage.state(each.id) for each in changed.published] == ["ready", "ready"]
    assert await papers(stage) == [
        ("cursor", b"1", 1), ("log", b"1", 2), ("new", b"2", 1), ("seen", b"{}", 1),
    ]  # fmt: skip
    assert (await stage.store.document("paper", "new") or paper("")).expires_at == 2**52
    assert await stage.store.directory_version() == directory
    assert await stage.store.advance(Change(touch_directory=True)) == Changed()
    assert await stage.store.directory_version() != directory


@pytest.mark.parametrize(
    "change",
    [
        Change(guards=(paper("a", version=2),)),
        Change(guards=(paper("a", version=0),)),
        Change(guards=(paper("a", version=1), paper("b", version=1))),
        Change(guards=(paper("b", version=0),), expects=(("paper", "a", 0),)),
        Change(expects=(("paper", "b", 1),)),
    ],
)
async def test_a_change_whose_guard_differs_writes_nothing(stage: Stage, change: Change) -> None:
    await stage.store.save_documents([paper("a")])
    directory = await stage.store.directory_version()
    full = replace(
        change,
        saves=(paper("c"),),
        deletes=(("paper", "a"),),
        entries=(await entry(stage),),
        touch_directory=True,
    )
    with ada():
        assert await stage.store.advance(full) is None
    assert await papers(stage) == [("a", b"{}", 1)]
    assert await stage.places() == {}
    assert await stage.store.acts() == []
    assert await stage.store.directory_version() == directory


async def test_a_refused_entry_leaves_everything_as_it_was(stage: Stage) -> None:
    await stage.queue("work", max_depth=1)
    await stage.store.save_documents([paper("a")])
    await stage.publish(queue="work")
    change = Change(
        guards=(paper("a", b"1", version=1),),
        saves=(paper("b"),),
        entries=(await entry(stage), await entry(stage, "work"), await entry(stage, name="n")),
    )
    with ada():
        changed = await stage.store.advance(change)
    assert changed == Changed(
        (
            Published(0, code="NOT_PUBLISHED"),
            Published(0, code="QUEUE_FULL"),
            Published(0, code="NOT_PUBLISHED"),
        ),
        written=False,
    )
    assert await papers(stage) == [("a", b"{}", 1)]
    assert await stage.places() == {}
    assert await stage.store.acts() == []


async def test_an_entry_seen_before_does_not_hold_up_a_change(stage: Stage) -> None:
    once = await entry(stage, body=b"x", dedup=Dedup("k"))
    first = await stage.store.advance(Change(entries=(once,)))
    again = await stage.store.advance(Change(saves=(paper("a"),), entries=(once,)))
    assert first is not None
    assert again is not None
    assert again.written
    assert again.published == (Published(first.published[0].id, duplicate=True),)
    assert await papers(stage) == [("a", b"{}", 1)]


async def test_of_many_who_advance_from_the_same_version_one_wins(stage: Stage) -> None:
    others = [await stage.another() for _ in range(4)]
    message = await entry(stage)

    async def race(each: Stage, version: int, name: str) -> Changed | None:
        cursor = Document(kind="paper", name="cursor", body=name.encode(), version=version)
        return await each.store.advance(
            Change(guards=(cursor,), saves=(paper(f"row {version}", name.encode()),),
                   entries=(message,))
        )  # fmt: skip

    for version in range(5):
        tries = [race(each, version, str(n)) for n, each in enumerate(others)]
        assert sum(each is not None for each in await asyncio.gather(*tries)) == 1
        saved = await stage.store.document("paper", "cursor")
        row = await stage.store.document("paper", f"row {version}")
        assert saved is not None
        assert row is not None
        assert saved.body == row.body
    assert await stage.places() == {"ready": 5}


async def test_a_document_that_is_expected_cannot_change_under_a_change(stage: Stage) -> None:
    """Two changes that each expect what the other writes: at most one is written."""
    one, other = await stage.another(), await stage.another()
    for _ in range(5):
        await stage.store.delete_documents("paper", ["a", "b"])
        found = await asyncio.gather(
            one.store.advance(Change(saves=(paper("a"),), expects=(("paper", "b", 0),))),
            other.store.advance(Change(saves=(paper("b"),), expects=(("paper", "a", 0),))),
        )
        assert sum(each is not None for each in found) == 1


async def test_who_acts_is_written_down_with_the_change(stage: Stage) -> None:
    with ada():
        await stage.store.advance(Change(saves=(paper("a"),)))
    (act,) = await stage.store.acts()
    assert (act.subject, act.verb, act.request_id) == (ADA.subject, ADA.verb, ADA.request_id)


async def test_consumers_wake_up_for_the_messages_of_a_change(stage: Stage) -> None:
    queue_id = await stage.queue_id()
    since = stage.store.wakes
    waiting = asyncio.create_task(stage.store.wait_ready([queue_id], 60, since))
    await stage.store.advance(Change(entries=(await entry(stage),)))
    await asyncio.wait_for(waiting, 30)
    assert len(await stage.claim()) == 1
