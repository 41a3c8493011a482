"""Rules on ends fire once, also behind an open transaction and with agents that are killed."""

import pytest

from bench.rule_ends import play
from penstock.agents.rule_follower import RuleFollower
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.model.message import Draft
from penstock.model.routing import FIRED
from penstock.model.store_types import Completion, Entry
from penstock.stores.postgres.store import PostgresStore
from tests.extent import ALL
from tests.postgres.scenes import QUEUE, connect

pytestmark = pytest.mark.anyio
RULE = {"name": "r", "queue": "source", "on": "completed", "do": [{"copy": "after"}]}


async def end_messages(broker: Broker, count: int) -> None:
    for _ in range(count):
        await broker.publish(Draft(queue="source"))
    claimed = (await broker.claim("source", consumer="c", limit=count)).messages
    await broker.complete_many([Completion(each.id, each.fence) for each in claimed])


async def follow(store: PostgresStore) -> None:
    agent = RuleFollower(store, QueueCache(store), "me")
    while not await agent.tick():
        pass


async def test_ends_behind_an_open_transaction_fire_at_once_and_not_again(
    store: PostgresStore, url: str
) -> None:
    """Numbers of transactions grow past the positions of rows, so they must not be compared."""
    broker = Broker(store)
    for name in ("source", "after"):
        await broker.admin.create_queue(name)
    await broker.rules.save(RULE)
    after = await broker.get_queue("after")
    await end_messages(broker, 2)
    await follow(store)
    async with connect(url) as writer:
        transaction = writer.transaction()
        await transaction.start()
        await store.aenqueue_on(writer, [Entry(QUEUE, "test", b"")])
        for fired in (5, 8):
            await end_messages(broker, 3)
            # Each is a new process, which knows nothing of what the one before did.
            await follow(store)
            await follow(store)
            assert (await store.depths(0))[after.id, "ready"] == fired
        await transaction.commit()
    await follow(store)
    assert (await store.depths(0))[after.id, "ready"] == 8
    assert await store.documents(FIRED) == []


async def test_each_end_fires_once_though_the_agents_are_killed(url: str) -> None:
    ends, kills = (20_000, 20) if ALL else (500, 2)
    scene = await play(url, ends, kills)
    assert (scene.ends >= ends, scene.lost, scene.repeated) == (True, 0, 0)
