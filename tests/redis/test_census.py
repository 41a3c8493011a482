"""A census in pages: whole, and right also while messages move."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from penstock.broker.local import Broker
from penstock.model.message import Draft, Leased, Nack, Release, SettleReject
from penstock.model.store_types import Completion, PlaceCount
from penstock.stores.redis.export import RedisExport
from penstock.stores.redis.store import RedisStore
from tests.redis.scenes import QUEUE, claim, places, publish

pytestmark = pytest.mark.anyio
PLACES = ("ready", "scheduled", "lease", "dead")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.stores.redis.export.COUNTED", 10)


async def fill(store: RedisStore, each: int) -> dict[str, list[int]]:
    """So many messages in each place, mixed."""
    broker = Broker(store)
    found: dict[str, list[int]] = {place: [] for place in (*PLACES, "ended")}
    for _ in range(each):
        await publish(store, 3)
        ended, dead, held = await claim(store, 3)
        await complete(store, [ended])
        await broker.settle(dead, SettleReject("no good"))
        (later,) = await broker.publish_many([Draft(delay=60)])
        for place, id in (("ended", ended.id), ("dead", dead.id), ("lease", held.id)):
            found[place].append(id)
        found["scheduled"].append(later.id)
    found["ready"] = await publish(store, each)
    return found


async def complete(store: RedisStore, held: list[Leased]) -> None:
    await store.complete([Completion(each.id, each.fence) for each in held])


def tally(place: str, ids: list[int]) -> PlaceCount:
    digest = sum((id % 1_000_003 * (id % 1_000_033)) % 1_000_000_007 for id in ids)
    return PlaceCount(QUEUE, place, len(ids), digest)


async def beside(work: Callable[[], Awaitable[object]], store: RedisStore) -> list[PlaceCount]:
    """The census, while the work is done over and over."""

    async def keep_on() -> None:
        while True:
            await work()

    async with anyio.create_task_group() as group:
        group.start_soon(keep_on)
        found = await store.census()
        group.cancel_scope.cancel()
    return found


async def test_every_place_is_counted_over_many_pages(store: RedisStore) -> None:
    found = await fill(store, 35)
    found["message"] = [id for ids in found.values() for id in ids]
    assert await store.census() == [tally(place, ids) for place, ids in sorted(found.items())]


async def test_large_bodies_are_counted_a_few_at_a_time(store: RedisStore) -> None:
    for _ in range(3):
        await publish(store, 3, bytes(600_000))
    assert await places(store) == {"message": 9, "ready": 9}


async def test_a_message_that_moves_is_in_one_place(store: RedisStore) -> None:
    ids = await publish(store, 200)
    broker = Broker(store)

    async def move() -> None:
        for held in await claim(store, 100):
            await broker.settle(held, Release() if held.id % 2 else Nack(delay=60))
        await claim(store, 2)

    found = {each.place: each for each in await beside(move, store)}
    assert found["message"] == tally("message", ids)
    parts = [each for place, each in found.items() if place in PLACES]
    assert sum(each.count for each in parts) == 200
    assert sum(each.digest for each in parts) == found["message"].digest


async def test_what_stays_is_counted_beside_what_comes_and_ends(store: RedisStore) -> None:
    stays = await fill(store, 30)

    async def work() -> None:
        await publish(store, 3)
        await complete(store, await claim(store, 2))

    found = {each.place: each for each in await beside(work, store)}
    for place in ("scheduled", "dead"):
        assert found[place] == tally(place, stays[place])
    for place in ("lease", "ended"):
        assert found[place].count >= 30
    assert sum(found[place].count for place in stays) <= found["message"].count


async def test_what_came_and_ended_since_is_not_counted(store: RedisStore) -> None:
    ids = await publish(store, 35)
    held = await claim(store, 20)
    await complete(store, held[:15])
    export = RedisExport(store.database)
    version = await export.version()
    await complete(store, held[15:])
    await publish(store, 30)
    found = await export.count(*version[:2])
    assert found == [
        tally("ended", ids[:15]), tally("message", ids), tally("ready", ids[20:]),
    ]  # fmt: skip


async def test_what_is_no_message_is_told(store: RedisStore) -> None:
    (id,) = await publish(store, 1)
    member = (await store.database.ask("ZRANGE", "ready", 0, -1))[0]
    await store.database.ask("ZADD", "ready", 0, member[:8] + b"0" * 14 + member[22:])
    assert await store.census() == [
        tally("message", [id]), tally("ready", [id]), PlaceCount(0, "ready", 1, 0),
    ]  # fmt: skip
