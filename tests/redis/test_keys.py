"""What is remembered of tickets goes with them."""

import pytest

from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.model.store_types import Retention
from penstock.stores.redis.store import RedisStore
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
