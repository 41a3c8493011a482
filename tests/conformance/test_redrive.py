"""Redriving what ended, and replacing a dead message by an edited one."""

import anyio
import pytest

from penstock.errors import Archived, PenstockError
from penstock.model.message import Dedup, State, Verb
from penstock.model.store_types import AnswerKind
from tests.conformance.acts import ENDABLE, ENDINGS
from tests.conformance.stage import HOUR, Stage, refusal

pytestmark = pytest.mark.anyio

FINAL = [name for name, (_, state) in ENDINGS.items() if state.final]


@pytest.mark.parametrize("name", FINAL)
async def test_what_ended_is_published_anew(stage: Stage, name: str) -> None:
    await stage.queue("work")
    fields = {
        "name": "n",
        "type": "mail",
        "correlation_id": "c",
        "dedup": Dedup("k"),
        "priority": 3,
    }
    id = await stage.publish(b"body", **ENDABLE, **fields)
    await ENDINGS[name][0](stage)
    before = await stage.record(id)
    copy = (await stage.admin.redrive(id)).id
    message = (await stage.record(copy)).message
    assert copy > id
    assert (message.body, message.type, message.priority) == (b"body", "mail", 3)
    assert (message.meta.parent_id, message.meta.correlation_id) == (id, "c")
    assert (message.meta.name, message.meta.dedup) == (None, None)
    assert await stage.record(id) == before
    assert await stage.drain("work") == [copy]


@pytest.mark.parametrize("name", FINAL)
async def test_what_ended_can_be_published_anew_with_another_body(stage: Stage, name: str) -> None:
    await stage.queue("work")
    id = await stage.publish(b"body", **ENDABLE)
    await ENDINGS[name][0](stage)
    copy = (await stage.admin.redrive(id, body=b"edited")).id
    leased = await stage.take("work")
    assert (leased.id, leased.body, leased.meta.parent_id) == (copy, b"edited", id)
    assert (await stage.record(id)).message.body == b"body"


async def test_an_edited_dead_message_is_replaced(stage: Stage) -> None:
    id = await stage.dead(body=b"body", labels={"a": "b"})
    copy = (await stage.admin.redrive(id, body=b"edited")).id
    old = await stage.record(id)
    assert (old.state, old.reason) == (State.CANCELLED, "replaced")
    assert (old.message.body, (await stage.last(id)).final) == (b"body", True)
    leased = await stage.take()
    assert (leased.id, leased.body, leased.meta.labels) == (copy, b"edited", {"a": "b"})
    assert leased.meta.parent_id == id
    assert await stage.places() == {"lease": 1, "ended": 1}


async def test_an_empty_body_is_an_edited_body(stage: Stage) -> None:
    id = await stage.dead(body=b"body")
    assert (await stage.admin.redrive(id, body=b"")).id != id
    assert (await stage.take()).body == b""


async def test_a_bad_edited_body_replaces_nothing(stage: Stage) -> None:
    await stage.queue("work", max_body=10)
    id = await stage.dead("work")
    before = await stage.all(id)
    with pytest.raises(PenstockError, match="body"):
        await stage.admin.redrive(id, body=b"x" * 11)
    assert await stage.all(id) == before


@pytest.mark.parametrize("body", [None, b"edited"])
@pytest.mark.parametrize("state", [State.DEAD, State.COMPLETED])
async def test_a_redrive_finds_room_in_a_full_queue(
    stage: Stage, state: State, body: bytes | None
) -> None:
    await stage.queue("work", max_depth=1)
    make = stage.dead if state is State.DEAD else stage.completed
    id = await make("work")
    full = await stage.publish(queue="work")
    redriven = (await stage.admin.redrive(id, body=body)).id
    assert sorted(await stage.drain("work")) == sorted([full, redriven])


async def test_what_left_the_store_cannot_be_redriven(stage: Stage) -> None:
    id = await stage.completed()
    await stage.travel(HOUR)
    assert await stage.prune(60) == 1
    with pytest.raises(Archived, match=str(id)):
        await stage.admin.redrive(id)


async def test_two_redrives_and_a_claim_at_once_leave_it_in_one_place(stage: Stage) -> None:
    others = [stage, await stage.another(), await stage.another()]
    for _ in range(10):
        id = await stage.dead()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(redrive, others[0], id)
            tasks.start_soon(redrive, others[1], id)
            tasks.start_soon(others[2].claim)
        verbs = [verb for verb, _ in await stage.life(id)]
        assert verbs == [Verb.REJECT, Verb.REDRIVE]
        places = await stage.places()
        assert places.get("lease", 0) + places.get("ready", 0) == 1
        await stage.admin.cancel(id, force=True)
    assert await stage.places() == {"ended": 10}


async def redrive(at: Stage, id: int) -> None:
    assert await refusal(at.admin.redrive(id)) in (None, "INVALID_STATE")


async def test_a_redrive_and_a_replacement_at_once_make_one_live_message(stage: Stage) -> None:
    other = await stage.another()
    for _ in range(10):
        id = await stage.dead()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put_back, stage, id)
            tasks.start_soon(replace, other, id)
        assert (await stage.places()).get("dead") is None
        assert len(await stage.drain()) == 1


async def put_back(at: Stage, id: int) -> None:
    """Redrives a message that was read as dead; one that was read as replaced is copied."""
    (answer,) = await at.store.redrive((id,))
    assert answer.kind in (AnswerKind.DONE, AnswerKind.INVALID)


async def replace(at: Stage, id: int) -> None:
    assert await refusal(at.admin.redrive(id, body=b"edited")) in (None, "INVALID_STATE")
