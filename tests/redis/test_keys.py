"""What is remembered of tickets goes with them."""

from typing import Any

import pytest

from penstock.broker.local import Broker
from penstock.model.message import After, Draft, Flag
from penstock.model.store_types import Completion, Entry, Retention
from penstock.stores.redis import health
from penstock.stores.redis.store import RedisStore
from tests.redis.scenes import QUEUE, claim
from tests.servers.redis import Redis

pytestmark = pytest.mark.anyio


async def test_who_is_cancelled_leaves_its_line(store: RedisStore, redis_server: Redis) -> None:
    broker = Broker(store)
    drafts = [Draft(ordering_key="k") for _ in range(3)]
    first, second, _ = [each.id for each in await broker.publish_many(drafts)]
    with redis_server.connect() as outside:
        assert outside.zcard("{penstock}:line") == 2
        await store.cancel([second])
        assert outside.zcard("{penstock}:line") == 1
        await store.cancel([first])
        assert outside.zcard("{penstock}:line") == 0


async def test_nothing_is_left_of_what_ended_and_was_pruned(
    store: RedisStore, redis_server: Redis
) -> None:
    broker = Broker(store)
    with redis_server.connect() as outside:
        before = set(outside.scan_iter())
        drafts = [
            Draft(name="n"), Draft(correlation_id="c"), Draft(ordering_key="k"), Draft(ttl=60),
            Draft(delay=60), Draft(lease=5),
        ]  # fmt: skip
        for each in await broker.publish_many(drafts):
            await store.cancel([each.id])
        await prune_all(store)
        # Two sets and a stream that are empty have a name no more; these say what was here.
        assert set(outside.scan_iter()) - before <= {b"{penstock}:gap", b"{penstock}:history"}
        assert outside.xlen("{penstock}:history") == 0


async def prune_all(store: RedisStore) -> None:
    pruned = await store.prune(Retention((2,), await store.now(), 0))
    assert pruned.count == 6


@pytest.mark.parametrize(
    ("torn", "found"),
    [
        ("hold", "1 waiting messages without a hold"),
        ("scheduled", "1 holds without a message"),
        ("nudge", "1 waiting messages that missed an end"),
    ],
)
async def test_doctor_finds_a_torn_wait(
    store: RedisStore, redis_server: Redis, torn: str, found: str
) -> None:
    last = Entry(QUEUE, "test", b"", flags=Flag.HELD, after=After(entries=(0,)))
    await store.enqueue([Entry(QUEUE, "test", b""), last], atomic=True)
    (leased,) = await claim(store)
    await store.complete([Completion(leased.id, leased.fence)])
    with redis_server.connect() as outside:
        outside.delete(f"{{penstock}}:{torn}")
    (waits,) = [check for check in await store.examine() if check.name == "waits"]
    assert (waits.ok, found in waits.text) == (False, True), waits.text


async def test_doctor_looks_at_few_edges_at_once(
    store: RedisStore, redis_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "WAITS_BATCH", 3)
    monkeypatch.setattr(health, "EDGES_BATCH", 4)
    children = [Entry(QUEUE, "test", b"") for _ in range(3)]
    fan_in = Entry(QUEUE, "test", b"", flags=Flag.HELD, after=After(entries=(0, 1, 2)))
    await store.enqueue([*children, *[fan_in] * 5], atomic=True)
    with redis_server.connect() as outside:
        # New holds are looked at soon, and are not checked before.
        outside.delete("{penstock}:nudge")
    run, looked = store.database.run, list[int]()

    async def count_looked(verb: str, *words: Any) -> Any:
        reply = await run(verb, *words)
        if verb == "torn_waits":
            looked.append(reply[-1])
        return reply

    monkeypatch.setattr(store.database, "run", count_looked)
    (waits,) = [check for check in await store.examine() if check.name == "waits"]
    assert (waits.ok, waits.text, looked) == (True, "5 holds", [2, 2, 1])
