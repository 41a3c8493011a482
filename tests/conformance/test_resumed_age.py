"""The age of a message that waited counts from its resume."""

import pytest

from penstock.model.message import After, Flag, Leased, Moment
from penstock.model.store_types import Entry
from penstock.model.waiting import Hold, SignalDraft, Wait
from tests.conformance.stage import DAY, Stage

pytestmark = pytest.mark.anyio


async def wait(stage: Stage, leased: Leased, reason: str, *holds: Hold) -> None:
    asked = Wait(
        id=leased.id, fence=leased.fence, seen_flags=leased.flags, attempts=0, deliveries=0,
        reason=reason, holds=holds,
    )  # fmt: skip
    await stage.store.wait(asked)


async def sleep(stage: Stage, seconds: float) -> Moment:
    """Lets the next message of the queue sleep, and returns when it resumed."""
    leased = await stage.take("work")
    await wait(stage, leased, "sleep", Hold(kind="moment", delay=seconds))
    await stage.travel(seconds)
    assert (await stage.store.resume_held()).resumed == 1
    return await stage.store.now()


async def read_since(stage: Stage) -> Moment:
    return (await stage.store.waiting_since())[await stage.queue_id("work")]


async def test_after_a_sleep_a_message_waits_since_its_resume(stage: Stage) -> None:
    await stage.queue("work")
    await stage.publish(queue="work")
    resumed = await sleep(stage, 30 * DAY)
    await stage.travel(5)
    assert await read_since(stage) == resumed
    resumed = await sleep(stage, DAY)
    assert await read_since(stage) == resumed


async def test_after_a_signal_a_message_waits_since_its_arrival(stage: Stage) -> None:
    await stage.queue("work")
    id = await stage.publish(queue="work")
    await wait(stage, await stage.take("work"), "signal:go", Hold(kind="signal", name="go"))
    await stage.travel(DAY)
    await stage.store.signal(SignalDraft(id=id, name="other", body=b"1"))
    await stage.travel(DAY)
    arrived = await stage.store.now()
    for _ in range(2):
        await stage.store.signal(SignalDraft(id=id, name="go", body=b"1"))
        await stage.store.resume_held()
        await stage.travel(60)
    assert await read_since(stage) == arrived


async def test_a_signal_that_came_before_the_wait_ends_it_at_once(stage: Stage) -> None:
    await stage.queue("work")
    id = await stage.publish(queue="work")
    leased = await stage.take("work")
    await stage.store.signal(SignalDraft(id=id, name="go", body=b"1"))
    await stage.travel(10)
    await wait(stage, leased, "signal:go", Hold(kind="signal", name="go", delay=DAY))
    waited = await stage.store.now()
    assert (await stage.store.resume_held()).resumed == 1
    await stage.travel(60)
    assert await read_since(stage) == waited


async def test_after_its_children_a_message_waits_since_the_last_end(stage: Stage) -> None:
    await stage.queue("work")
    await stage.publish(queue="work")
    children = await stage.publish_each(2)
    after = After(ids=tuple(children))
    await wait(stage, await stage.take("work"), "after:2", Hold(kind="after", after=after))
    for _ in children:
        await stage.travel(DAY)
        await stage.broker.complete(await stage.take())
    ended = await stage.store.now()
    await stage.store.resume_held()
    await stage.travel(60)
    assert await read_since(stage) == ended


async def test_a_message_published_after_another_waits_since_the_end_of_that(stage: Stage) -> None:
    first = Entry(await stage.queue_id(), "message", b"")
    after = After(entries=(0,))
    second = Entry(await stage.queue("work"), "message", b"", flags=Flag.HELD, after=after)
    await stage.store.enqueue([first, second], atomic=True)
    await stage.travel(DAY)
    await stage.drain()
    ended = await stage.store.now()
    await stage.store.resume_held()
    await stage.travel(60)
    assert await read_since(stage) == ended


async def test_aging_does_not_count_the_time_of_a_wait(stage: Stage) -> None:
    queue_id = await stage.queue("work", aging=True)
    low = await stage.publish(queue="work", priority=0)
    await sleep(stage, DAY)
    high = await stage.publish(queue="work", priority=9)
    assert await stage.store.age(queue_id, 300, 10) == 0
    await stage.travel(300)
    assert await stage.store.age(queue_id, 300, 10) == 1
    assert await stage.drain("work") == [low, high]
