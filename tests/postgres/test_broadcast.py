"""Broadcasts in callers' transactions that are open while subscriptions are made."""

import pytest

from penstock.agents import broadcast_follower
from penstock.agents.broadcast_follower import BroadcastFollower
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.errors import Busy
from penstock.model.broadcast import BROADCAST_CATCH_UP
from penstock.model.message import Draft
from penstock.stores.postgres.store import PostgresStore
from tests.postgres.scenes import connect, open_store

pytestmark = pytest.mark.anyio
DRAFT = Draft(queue="events")


async def follow(store: PostgresStore) -> None:
    agent = BroadcastFollower(store, QueueCache(store), "me")
    while not await agent.tick():
        pass


async def make_broadcast(store: PostgresStore) -> Broker:
    broker = Broker(store)
    await broker.admin.create_queue("events", kind="broadcast")
    await broker.broadcasts.subscribe("events", "old")
    return broker


async def publish_on(broker: Broker, connection: object) -> int:
    entry = await broker.admit(DRAFT)
    return (await broker.apublish_on(connection, DRAFT, entry)).id


async def test_catching_up_goes_on_until_every_earlier_transaction_has_ended(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed is in the order of transactions: a late message of an early one comes first."""
    monkeypatch.setattr(broadcast_follower, "GRACE_MICROS", 0)
    broker = await make_broadcast(store)
    async with connect(url) as early, connect(url) as late:
        first, second = early.transaction(), late.transaction()
        await first.start()
        await second.start()
        await early.execute("SELECT txid_current()")
        ids = [await publish_on(broker, late)]
        await broker.broadcasts.subscribe("events", "new", start="earliest")
        await follow(store)
        ids.append(await publish_on(broker, early))
        await first.commit()
        await follow(store)
        await second.commit()
    ids.append((await broker.publish(DRAFT)).id)
    await follow(store)
    taken = (await broker.claim("events/new", consumer="c", limit=9)).messages
    assert sorted(each.meta.parent_id or 0 for each in taken) == ids
    assert await store.documents(BROADCAST_CATCH_UP) == []


async def test_a_transaction_with_an_old_snapshot_misses_no_new_subscription(
    store: PostgresStore, url: str
) -> None:
    broker = await make_broadcast(store)
    async with await open_store(url) as handle, connect(url) as caller:
        other = Broker(handle)
        await other.publish(DRAFT)
        transaction = caller.transaction(isolation="repeatable_read")
        await transaction.start()
        await caller.execute("SELECT FROM penstock.message")
        await broker.broadcasts.subscribe("events", "new")
        with pytest.raises(Busy, match="changed meanwhile; try again"):
            await publish_on(other, caller)
        await transaction.rollback()
