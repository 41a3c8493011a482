"""One message per dedup key: in its window, or while it is unfinished."""

import anyio
import pytest

from penstock.errors import IdempotencyConflict, NameTaken, QueueFull
from penstock.model.message import Dedup, Draft, Nack, State
from penstock.model.store_types import Published
from tests.conformance.acts import ENDABLE, ENDINGS
from tests.conformance.stage import DAY, HOUR, Stage

pytestmark = pytest.mark.anyio

WINDOW = Dedup("k", 60)
UNIQUE = Dedup("k", None)


async def publish(stage: Stage, dedup: Dedup, body: bytes = b"", queue: str = "work") -> Published:
    return await stage.broker.publish(Draft(body=body, queue=queue, dedup=dedup))


@pytest.mark.parametrize("dedup", [WINDOW, UNIQUE])
async def test_the_same_key_and_body_is_the_same_message(stage: Stage, dedup: Dedup) -> None:
    await stage.queue("work")
    first = await publish(stage, dedup)
    assert not first.duplicate
    assert await publish(stage, dedup) == Published(first.id, duplicate=True)
    assert await stage.places("work") == {"ready": 1}


async def test_the_same_key_with_another_body_is_a_conflict(stage: Stage) -> None:
    await stage.queue("work")
    first = await publish(stage, WINDOW, b"one")
    before = await stage.all(first.id)
    with pytest.raises(IdempotencyConflict, match="'k'"):
        await publish(stage, WINDOW, b"two")
    assert await stage.all(first.id) == before


async def test_a_unique_key_stands_for_one_message_whatever_its_body(stage: Stage) -> None:
    await stage.queue("work")
    first = await publish(stage, UNIQUE, b"one")
    before = await stage.all(first.id)
    assert await publish(stage, UNIQUE, b"two") == Published(first.id, duplicate=True)
    assert await stage.all(first.id) == before


async def test_a_window_outlives_its_message(stage: Stage) -> None:
    first = await stage.completed(dedup=WINDOW)
    await stage.travel(50)
    assert await publish(stage, WINDOW, queue="default") == Published(first, duplicate=True)


async def test_a_key_is_free_after_its_window(stage: Stage) -> None:
    await stage.queue("work")
    first = await publish(stage, WINDOW, b"one")
    await stage.travel(61)
    second = await publish(stage, WINDOW, b"two")
    assert (second.duplicate, second.id > first.id) == (False, True)
    assert await publish(stage, WINDOW, b"two") == Published(second.id, duplicate=True)


async def test_a_window_is_a_day_unless_said(stage: Stage) -> None:
    await stage.queue("work")
    first = await publish(stage, Dedup("k"))
    await stage.travel(DAY - HOUR)
    assert (await publish(stage, Dedup("k"))).id == first.id
    await stage.travel(HOUR + 1)
    assert (await publish(stage, Dedup("k"))).id != first.id


async def test_only_the_first_publish_opens_the_window(stage: Stage) -> None:
    await stage.queue("work")
    first = await publish(stage, WINDOW)
    await stage.travel(40)
    assert (await publish(stage, WINDOW)).duplicate
    await stage.travel(40)
    assert (await publish(stage, WINDOW)).id != first.id


@pytest.mark.parametrize("name", ENDINGS)
async def test_every_end_frees_a_unique_key(stage: Stage, name: str) -> None:
    await stage.queue("work")
    first = await stage.publish(dedup=UNIQUE, **ENDABLE)
    await ENDINGS[name][0](stage)
    second = await publish(stage, UNIQUE, b"other")
    assert (second.duplicate, second.id > first) == (False, True)


async def test_an_end_frees_nobody_elses_unique_key(stage: Stage) -> None:
    await stage.publish(dedup=Dedup("mine", None))
    await stage.publish(dedup=Dedup("yours", None), delay=60)
    await stage.broker.complete(await stage.take())
    assert (await publish(stage, Dedup("yours", None), queue="default")).duplicate
    assert not (await publish(stage, Dedup("mine", None), queue="default")).duplicate


async def test_a_unique_key_is_held_through_claims_and_retries(stage: Stage) -> None:
    await stage.queue("work")
    first = await publish(stage, UNIQUE)
    leased = await stage.take("work")
    assert (await publish(stage, UNIQUE)).id == first.id
    await stage.broker.settle(leased, Nack(delay=DAY))
    await stage.travel(DAY + 1)
    assert (await publish(stage, UNIQUE)).id == first.id
    await stage.promote()
    assert (await publish(stage, UNIQUE)).id == first.id


async def test_a_unique_key_has_no_window(stage: Stage) -> None:
    await stage.queue("work")
    first = await publish(stage, UNIQUE)
    await stage.travel(400 * DAY)
    await stage.store.sweep_keys(100)
    assert (await publish(stage, UNIQUE)).id == first.id


async def test_windows_and_unique_keys_do_not_meet(stage: Stage) -> None:
    await stage.queue("work")
    assert not (await publish(stage, WINDOW, b"one")).duplicate
    assert not (await publish(stage, UNIQUE, b"two")).duplicate


async def test_keys_belong_to_their_queue(stage: Stage) -> None:
    await stage.queue("work")
    assert not (await publish(stage, WINDOW, b"one", "work")).duplicate
    assert not (await publish(stage, WINDOW, b"two", "default")).duplicate


async def test_a_redrive_asks_for_no_key(stage: Stage) -> None:
    dead = await stage.dead(dedup=UNIQUE)
    successor = await publish(stage, UNIQUE, b"other", "default")
    await stage.admin.redrive(dead)
    assert await stage.drain() == [dead, successor.id]


async def test_a_redriven_message_frees_nobody_elses_key(stage: Stage) -> None:
    dead = await stage.dead(dedup=UNIQUE)
    successor = await publish(stage, UNIQUE, b"other", "default")
    await stage.admin.redrive(dead)
    leased = await stage.take()
    assert leased.id == dead
    await stage.broker.complete(leased)
    again = await publish(stage, UNIQUE, b"other", "default")
    assert again == Published(successor.id, duplicate=True)


async def test_a_copy_has_no_key(stage: Stage) -> None:
    done = await stage.completed(dedup=WINDOW)
    copy = await stage.admin.redrive(done)
    assert (await stage.record(copy.id)).message.meta.dedup is None
    assert (await publish(stage, WINDOW, queue="default")).id == done


async def test_a_publish_refused_by_depth_takes_no_key(stage: Stage) -> None:
    await stage.queue("work", max_depth=1)
    await stage.publish(queue="work")
    with pytest.raises(QueueFull):
        await publish(stage, WINDOW)
    await stage.take("work")
    assert not (await publish(stage, WINDOW, b"other")).duplicate


async def test_a_publish_refused_by_name_takes_no_key(stage: Stage) -> None:
    await stage.publish(name="n")
    with pytest.raises(NameTaken):
        await stage.publish(name="n", dedup=WINDOW)
    assert not (await publish(stage, WINDOW, b"other", "default")).duplicate


async def test_a_duplicate_needs_no_room_and_no_name(stage: Stage) -> None:
    await stage.queue("work", max_depth=1)
    draft = Draft(queue="work", name="n", dedup=WINDOW)
    first = await stage.broker.publish(draft)
    assert await stage.broker.publish(draft) == Published(first.id, duplicate=True)


async def test_sweeping_drops_only_keys_whose_time_is_over(stage: Stage) -> None:
    await stage.queue("work")
    await publish(stage, Dedup("short", 60))
    long = await publish(stage, Dedup("long", 600))
    await stage.travel(61)
    assert await stage.store.sweep_keys(100) == 1
    assert await stage.store.sweep_keys(100) == 0
    assert (await publish(stage, Dedup("long", 600))).id == long.id


async def test_a_batch_meets_its_own_keys(stage: Stage) -> None:
    drafts = [Draft(body=body, dedup=WINDOW) for body in (b"one", b"one", b"two")]
    first, same, other = await stage.broker.publish_many(drafts)
    assert same == Published(first.id, duplicate=True)
    assert (other.id, other.code) == (0, IdempotencyConflict.code)
    assert await stage.places() == {"ready": 1}


@pytest.mark.parametrize("dedup", [WINDOW, UNIQUE])
async def test_fifty_publishes_at_once_make_one_message(stage: Stage, dedup: Dedup) -> None:
    await stage.queue("work")
    answers: list[Published] = []

    async def once(at: Stage) -> None:
        answers.append(await publish(at, dedup))

    others = [stage, await stage.another(), await stage.another()]
    async with anyio.create_task_group() as tasks:
        for n in range(50):
            tasks.start_soon(once, others[n % 3])
    assert len({answer.id for answer in answers}) == 1
    assert sum(not answer.duplicate for answer in answers) == 1
    assert await stage.places("work") == {"ready": 1}


async def test_a_duplicate_says_nothing_new_about_its_message(stage: Stage) -> None:
    await stage.queue("work")
    first = await publish(stage, UNIQUE)
    before = await stage.all(first.id)
    later = Draft(queue="work", dedup=UNIQUE, priority=9, labels={"a": "b"}, delay=60)
    assert (await stage.broker.publish(later)).id == first.id
    assert await stage.all(first.id) == before
    assert await stage.state(first.id) is State.READY


async def test_a_queue_by_key_takes_any_body_for_the_same_message(stage: Stage) -> None:
    await stage.queue("work", dedup_by="key")
    first = await stage.publish(queue="work", body=b"1", dedup=Dedup("k"))
    again = await stage.broker.publish(Draft(queue="work", body=b"2", dedup=Dedup("k")))
    assert (again.id, again.duplicate) == (first, True)
    assert (await stage.record(first)).message.body == b"1"
