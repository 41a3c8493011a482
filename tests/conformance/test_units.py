"""An entry and its copies are written together, or none of them is."""

import pytest
from msgspec.structs import replace

from penstock.model.documents import Document
from penstock.model.message import Draft, Meta, State
from penstock.model.store_types import Entry, Published
from penstock.model.units import PARENT, STALE, Unit
from penstock.rules.drafts import check_and_make_entry
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def entry(stage: Stage, queue: str, **fields: object) -> Entry:
    draft = Draft(queue=queue, **fields)  # type: ignore[arg-type]
    return check_and_make_entry(draft, await stage.admin.queue(queue))


async def copy_to(stage: Stage, queue: str, **fields: object) -> Entry:
    made = await entry(stage, queue, parent_id=PARENT, **fields)
    return replace(made, overflow="dead")


async def unit(stage: Stage, first: Entry, *copies: Entry, **fields: object) -> Entry:
    return replace(first, unit=Unit(copies=copies, **fields))  # type: ignore[arg-type]


async def meta_of(stage: Stage, queue: str) -> Meta:
    return (await stage.take(queue)).meta


async def test_copies_are_written_with_their_entry_and_name_it_as_parent(stage: Stage) -> None:
    await stage.queue("left")
    await stage.queue("right")
    copies = (
        await copy_to(stage, "left", type='"parent_id":9223372036854775807', body=b"l"),
        await copy_to(stage, "right", body=b'"parent_id":9223372036854775807', ordering_key="k"),
    )
    given = await unit(stage, await entry(stage, "default", body=b"first"), *copies)
    (published,) = await stage.store.enqueue([given])
    assert (await stage.take()).id == published.id
    left, right = await stage.take("left"), await stage.take("right")
    assert (left.type, left.body) == ('"parent_id":9223372036854775807', b"l")
    assert left.meta == Meta(parent_id=published.id)
    assert right.body == b'"parent_id":9223372036854775807'
    assert right.meta == Meta(parent_id=published.id, ordering_key="k")


async def test_each_entry_of_a_batch_answers_for_its_unit(stage: Stage) -> None:
    await stage.queue("copies")
    first = await entry(stage, "default", body=b"1")
    given = [
        await unit(stage, first, await copy_to(stage, "copies", body=b"a")),
        await entry(stage, "default", body=b"2"),
        await unit(stage, first, await copy_to(stage, "copies", body=b"b")),
    ]
    published = await stage.store.enqueue(given)
    taken = await stage.claim("copies", limit=10)
    assert [each.id for each in await stage.claim(limit=10)] == [each.id for each in published]
    assert [(each.body, each.meta.parent_id) for each in taken] == [
        (b"a", published[0].id),
        (b"b", published[2].id),
    ]


async def test_a_duplicate_or_refused_entry_writes_no_copies(stage: Stage) -> None:
    await stage.queue("copies")
    copy = await copy_to(stage, "copies")
    named = await unit(stage, await entry(stage, "default", name="n"), copy)
    full = await entry(stage, "default")
    refused = await unit(stage, replace(full, max_depth=1), copy)
    (first,) = await stage.store.enqueue([named])
    assert await stage.store.enqueue([named, refused]) == [
        Published(0, code="NAME_TAKEN"),
        Published(0, code="QUEUE_FULL"),
    ]
    assert len(await stage.claim("copies", limit=10)) == 1
    assert await stage.drain() == [first.id]


async def test_a_copy_into_a_full_queue_is_dead(stage: Stage) -> None:
    await stage.queue("small", max_depth=1)
    await stage.publish(queue="small")
    given = await unit(stage, await entry(stage, "default"), await copy_to(stage, "small"))
    await stage.store.enqueue([given])
    assert await stage.places("small") == {"ready": 1, "dead": 1}


async def test_an_entry_that_ends_at_once_is_never_delivered(stage: Stage) -> None:
    first = await entry(stage, "default", ordering_key="k")
    given = [
        await unit(stage, first, state=State.COMPLETED, reason="archived_by_rule"),
        await unit(stage, first, state=State.DEAD, reason="fraud"),
    ]
    archived, dead = await stage.store.enqueue(given)
    record = await stage.record(archived.id)
    assert (record.state, record.reason) == (State.COMPLETED, "archived_by_rule")
    record = await stage.record(dead.id)
    assert (record.state, record.reason) == (State.DEAD, "fraud")
    assert await stage.claim() == []
    last = await stage.publish(ordering_key="k")
    assert await stage.drain() == [last]


async def test_keys_are_looked_up_in_the_queue_that_was_addressed(stage: Stage) -> None:
    home = await stage.queue("home")
    routed = await entry(stage, "default", name="n", body=b"routed")
    (first,) = await stage.store.enqueue([await unit(stage, routed, addressed_to=home)])
    assert await stage.store.named(home, "n") == first.id
    again = await stage.store.enqueue([await entry(stage, "home", name="n")])
    assert again == [Published(0, code="NAME_TAKEN")]
    assert await stage.drain() == [first.id]


async def test_an_entry_made_from_another_version_of_a_document_is_stale(stage: Stage) -> None:
    await stage.store.save_documents([Document(kind="set", name="a", body=b"1")])
    first = await entry(stage, "default")
    stands = await unit(stage, first, expects=(("set", "a", 1),))
    stale = await unit(stage, first, expects=(("set", "a", 2),))
    missing = await unit(stage, first, expects=(("set", "b", 0),))
    codes = [each.code for each in await stage.store.enqueue([stands, stale, missing])]
    assert codes == [None, STALE, None]


async def test_of_several_broadcasts_only_those_of_a_stale_set_are_left_out(stage: Stage) -> None:
    await stage.store.save_documents([Document(kind="set", name="a", body=b"1")])
    for name in ("one", "two"):
        await stage.queue(name)
    given = []
    for body, version in ((b"1", 1), (b"2", 7), (b"3", 1)):
        first = await entry(stage, "default", body=body, labels={"at": body.decode()})
        copies = [await copy_to(stage, name, body=body) for name in ("one", "two")]
        end = {"state": State.COMPLETED, "reason": "broadcast"}
        given.append(await unit(stage, first, *copies, **end, expects=(("set", "a", version),)))
    answers = await stage.store.enqueue(given)
    assert [each.code for each in answers] == [None, STALE, None]
    for name in ("one", "two"):
        taken = [(each.body, each.meta.parent_id) for each in await stage.claim(name, limit=9)]
        assert taken == [(b"1", answers[0].id), (b"3", answers[2].id)]
    parent = await stage.record(answers[2].id)
    assert (parent.message.body, parent.message.meta.labels) == (b"3", {"at": "3"})
    assert (parent.state, parent.reason) == (State.COMPLETED, "broadcast")


async def test_an_atomic_batch_with_a_stale_unit_writes_nothing(stage: Stage) -> None:
    await stage.queue("copies")
    first = await unit(stage, await entry(stage, "default"), await copy_to(stage, "copies"))
    stale = await unit(stage, await entry(stage, "default"), expects=(("set", "a", 2),))
    codes = [each.code for each in await stage.store.enqueue([first, stale], atomic=True)]
    assert codes == ["NOT_PUBLISHED", STALE]
    assert await stage.places() == {}
