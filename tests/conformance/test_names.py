"""A message may be known by a name, which is its own while it is stored."""

import anyio
import pytest

from penstock.errors import NameTaken, NotFound
from penstock.model.message import Draft, State
from tests.conformance.stage import HOUR, Stage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", ["j1", "42", "a/b", "ü 🦆", "x" * 200])
async def test_a_message_is_found_by_its_name(stage: Stage, name: str) -> None:
    id = await stage.publish(name=name)
    assert (await stage.admin.get(f"default/{name}")).message.id == id
    assert await stage.store.named(await stage.queue_id(), name) == id


async def test_every_verb_by_id_takes_a_name(stage: Stage) -> None:
    dead = await stage.dead(name="dead")
    done = await stage.publish(name="done")
    await stage.broker.complete(await stage.take(), b"result")
    waiting = await stage.publish(name="waiting", delay=60)
    await stage.admin.redrive("default/dead")
    await stage.admin.cancel("default/waiting")
    assert await stage.admin.result("default/done") == b"result"
    assert await stage.state(dead) is State.READY
    assert await stage.state(waiting) is State.CANCELLED
    assert (await stage.admin.get("default/done")).message.id == done


async def test_an_unknown_name_is_not_found(stage: Stage) -> None:
    await stage.publish(name="j1")
    with pytest.raises(NotFound, match="'j2'"):
        await stage.admin.get("default/j2")


async def test_a_name_in_use_is_refused_and_nothing_is_written(stage: Stage) -> None:
    id = await stage.publish(name="j1")
    before = await stage.all(id)
    with pytest.raises(NameTaken, match="'j1'"):
        await stage.publish(b"other", name="j1")
    assert await stage.all(id) == before


async def test_a_finished_message_keeps_its_name(stage: Stage) -> None:
    id = await stage.completed(name="j1")
    with pytest.raises(NameTaken):
        await stage.publish(name="j1")
    assert (await stage.admin.get("default/j1")).message.id == id


async def test_a_name_is_free_when_its_message_left_the_store(stage: Stage) -> None:
    await stage.completed(name="j1")
    await stage.travel(HOUR)
    assert await stage.prune(60) == 1
    with pytest.raises(NotFound):
        await stage.admin.get("default/j1")
    id = await stage.publish(name="j1")
    assert (await stage.admin.get("default/j1")).message.id == id


async def test_names_belong_to_their_queue(stage: Stage) -> None:
    await stage.queue("work")
    here, there = await stage.publish(name="j1"), await stage.publish(name="j1", queue="work")
    assert (await stage.admin.get("default/j1")).message.id == here
    assert (await stage.admin.get("work/j1")).message.id == there


async def test_a_batch_meets_its_own_names(stage: Stage) -> None:
    drafts = [Draft(name=name) for name in ("a", "b", "a", "c")]
    answers = await stage.broker.publish_many(drafts)
    assert [answer.code for answer in answers] == [None, None, NameTaken.code, None]
    assert await stage.places() == {"ready": 3}


async def test_a_copy_has_no_name(stage: Stage) -> None:
    done = await stage.completed(name="j1")
    copy = await stage.admin.redrive(done)
    assert (await stage.record(copy.id)).message.meta.name is None
    assert (await stage.admin.get("default/j1")).message.id == done


async def test_a_name_is_taken_once_by_many_at_once(stage: Stage) -> None:
    refused: list[NameTaken] = []

    async def once(at: Stage) -> None:
        try:
            await at.publish(name="j1")
        except NameTaken as error:
            refused.append(error)

    others = [stage, await stage.another()]
    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(once, others[n % 2])
    assert len(refused) == 19
    assert await stage.places() == {"ready": 1}
