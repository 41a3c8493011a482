"""The lanes over a real store: shared commits, own answers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from penstock import stores
from penstock.broker.group_commit import Batcher, GroupCommit
from penstock.model.message import Draft, Fail, State
from penstock.model.settings import QueueSettings
from penstock.model.store_types import DONE, Claim, Completion, Entry, Extension, Lock, Published
from penstock.rules.drafts import make_entry
from penstock.rules.lifecycle import settle
from penstock.store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await stores.open("sqlite://") as opened:
        yield opened


async def entries(store: Store, count: int) -> list[Entry]:
    queue = await store.queue("default", "default", "default")
    assert queue is not None
    return [make_entry(Draft(body=b"%d" % number), queue) for number in range(count)]


def make_counting(store: Store, calls: list[int]) -> Batcher[Entry, Published]:
    """A lane to the store that notes how many entries each call carries."""

    async def enqueue(items: Sequence[Entry]) -> list[Published]:
        calls.append(len(items))
        await asyncio.sleep(0)
        return await store.enqueue(items)

    return Batcher(enqueue, 1_000)


async def test_many_publishers_share_their_commits_and_keep_their_order(store: Store) -> None:
    calls: list[int] = []
    lane, drafts = make_counting(store, calls), await entries(store, 100)
    published = await asyncio.gather(*(lane.add([each]) for each in drafts))
    ids = [each.id for (each,) in published]
    records = [await store.get(id) for id in ids]
    assert calls == [1, 99]
    assert ids == sorted(set(ids))
    assert [record and record.message.body for record in records] == [each.body for each in drafts]


async def test_an_entry_the_store_cannot_write_fails_alone(store: Store) -> None:
    calls: list[int] = []
    lane, drafts = make_counting(store, calls), await entries(store, 5)
    drafts[3] = replace(drafts[3], type="\ud800")
    results: list[Any] = await asyncio.gather(
        *(lane.add([each]) for each in drafts), return_exceptions=True
    )
    refused = [isinstance(result, Exception) for result in results]
    counts = {tally.place: tally.count for tally in await store.census()}
    assert refused == [False, False, False, True, False]
    assert counts["ready"] == 4


async def test_every_verb_has_a_lane_that_answers_each_caller(store: Store) -> None:
    lanes, drafts = GroupCommit(store), await entries(store, 4)
    await asyncio.gather(*(lanes.enqueue([each]) for each in drafts))
    claim = Claim((drafts[0].queue_id,), "worker", limit=4)
    first, second, third, fourth = (await store.claim(claim)).messages
    extended = await asyncio.gather(
        *(lanes.extend([Extension(each.id, each.fence, 60)]) for each in (first, second))
    )
    assert [answer.lease_until is not None for (answer,) in extended] == [True, True]
    done = [lanes.complete([Completion(each.id, each.fence)]) for each in (first, second)]
    assert await asyncio.gather(*done) == [[DONE], [DONE]]
    looks = [lanes.leases([Lock(each.id, each.fence)]) for each in (first, third, fourth)]
    gone, *held = [lease for (lease,) in await asyncio.gather(*looks)]
    assert gone is None
    moves = [settle(lease, Fail("x"), QueueSettings()) for lease in held if lease is not None]
    await asyncio.gather(*(lanes.settle([move]) for move in moves))
    records = [await store.get(each.id) for each in (first, second, third, fourth)]
    states = [record and record.state for record in records]
    assert states == [State.COMPLETED] * 2 + [State.FAILED] * 2


async def test_all_or_none_goes_past_the_lane(store: Store) -> None:
    first, second = await entries(store, 2)
    named = [replace(first, name="same"), replace(second, name="same")]
    await GroupCommit(store).enqueue(named, atomic=True)
    assert await store.census() == []
