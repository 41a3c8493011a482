"""Whoever waits for work is told of it, wherever it came from."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from penstock.model.message import Nack, Release
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def published(stage: Stage) -> None:
    await stage.publish(queue="work")


async def published_in_a_batch(stage: Stage) -> None:
    await stage.publish_each(2, queue="work")


async def published_with_a_key(stage: Stage) -> None:
    await stage.publish(queue="work", ordering_key="k")


async def released(stage: Stage) -> None:
    await stage.broker.settle(await stage.take("work"), Release())


async def nacked(stage: Stage) -> None:
    await stage.broker.settle(await stage.take("work"), Nack(delay=0))


async def next_of_its_key(stage: Stage) -> None:
    await stage.broker.complete(await stage.take("work"))


async def reclaimed(stage: Stage) -> None:
    await stage.take("work")
    await stage.travel(LEASE_OVER)
    await stage.sweep()


async def promoted(stage: Stage) -> None:
    await stage.travel(61)
    assert await stage.promote() == 1


async def redriven(stage: Stage) -> None:
    await stage.admin.redrive("work/dead")


# What makes a message ready, and what has to be there for it.
WAKING: dict[str, tuple[Callable[[Stage], Awaitable[None]], list[dict[str, Any]]]] = {
    "published": (published, []),
    "published in a batch": (published_in_a_batch, []),
    "published with a key": (published_with_a_key, []),
    "released": (released, [{}]),
    "nacked": (nacked, [{}]),
    "next of its key": (next_of_its_key, [{"ordering_key": "k"}, {"ordering_key": "k"}]),
    "reclaimed": (reclaimed, [{}]),
    "promoted": (promoted, [{"delay": 60}]),
    "redriven": (redriven, []),
}


@pytest.mark.parametrize("name", WAKING)
async def test_work_wakes_whoever_waits(stage: Stage, name: str) -> None:
    act, drafts = WAKING[name]
    work = await stage.queue("work")
    if name == "redriven":
        await stage.dead("work", name="dead")
    for draft in drafts:
        await stage.publish(queue="work", **draft)
    before = stage.store.wakes
    await act(stage)
    assert stage.store.wakes > before
    with anyio.fail_after(20):
        await stage.store.wait_ready([work], 60, before)


async def test_a_queue_that_has_work_ends_the_wait_at_once(stage: Stage) -> None:
    await stage.publish()
    with anyio.fail_after(20):
        await stage.store.wait_ready([await stage.queue_id()], 60)


async def test_a_wait_ends_with_its_time(stage: Stage) -> None:
    with anyio.fail_after(20):
        await stage.store.wait_ready([await stage.queue_id()], 0.01)
        await stage.store.wait_ready([], 0.01, stage.store.wakes)


async def test_an_empty_claim_wakes_nobody(stage: Stage) -> None:
    before = stage.store.wakes
    assert await stage.claim() == []
    assert stage.store.wakes == before


@pytest.mark.parametrize("indexed", [False, True])
async def test_a_queue_says_whether_it_has_work_and_of_which_type(
    stage: Stage, indexed: bool
) -> None:
    queue = await stage.queue("work", filter_by_type=indexed)
    await stage.publish(queue="work", type="a", delay=60)
    await stage.publish(type="a")
    assert not await stage.store.has_ready(queue)
    await stage.publish(queue="work", type="b")
    assert await stage.store.has_ready(queue)
    assert not await stage.store.has_ready(queue, ("a", "c"))
    assert await stage.store.has_ready(queue, ("a", "b"))
    await stage.take("work")
    assert not await stage.store.has_ready(queue)
    assert not await stage.store.has_ready(queue, ("b",))
