"""Many at once: nothing is handed out twice, and nobody's open transaction keeps others waiting."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import asyncpg
import pytest

from penstock.broker.local import Broker
from penstock.errors import Busy
from penstock.model.message import Dedup, Draft, Leased, Nack, SettleReject
from penstock.model.settings import QueueSettings
from penstock.model.store_types import (
    Answer,
    Claim,
    Completion,
    Dedupe,
    Entry,
    Extension,
    Lock,
    Mark,
    Published,
)
from penstock.rules.lifecycle import settle
from penstock.stores.postgres.store import PostgresStore
from tests.postgres.scenes import CAP, QUEUE, claim, connect, execute, open_store, places, publish

pytestmark = pytest.mark.anyio

CLAIMERS, MESSAGES = 16, 2_000


async def test_claimers_at_once_get_every_message_once(url: str) -> None:
    async with await open_store(url, pool_size=8) as one, await open_store(url) as other:
        writing = asyncio.ensure_future(publish_in_pieces(one))
        takers = [drain(one if number % 2 else other, writing) for number in range(CLAIMERS)]
        with anyio.fail_after(CAP):
            taken = [each for part in await asyncio.gather(*takers) for each in part]
        assert sorted(each.id for each in taken) == sorted(await writing)
        assert len({each.id for each in taken}) == MESSAGES
        assert await places(one) == {"message": MESSAGES, "ended": MESSAGES}


async def publish_in_pieces(store: PostgresStore) -> list[int]:
    return [id for _ in range(20) for id in await publish(store, MESSAGES // 20)]


async def drain(store: PostgresStore, writing: "asyncio.Future[list[int]]") -> list[Leased]:
    """All it gets, until there is no more to come."""
    mine: list[Leased] = []
    while True:
        over = writing.done()
        taken = await claim(store, 10)
        if taken:
            answers = await store.complete([Completion(each.id, each.fence) for each in taken])
            assert {answer.kind for answer in answers} == {"done"}
            mine += taken
        elif over:
            return mine


@asynccontextmanager
async def transaction(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody's, open until the end, and then undone."""
    async with connect(url) as connection:
        started = connection.transaction()
        await started.start()
        yield connection
        await started.rollback()


@asynccontextmanager
async def holding(url: str, id: int) -> AsyncIterator[None]:
    async with transaction(url) as connection:
        await connection.execute("SELECT FROM penstock.lease WHERE id = $1 FOR UPDATE", id)
        yield


async def complete(store: PostgresStore, held: list[Leased]) -> list[Answer]:
    return await store.complete([Completion(each.id, each.fence) for each in held])


async def complete_with_results(store: PostgresStore, held: list[Leased]) -> list[Answer]:
    return await store.complete([Completion(each.id, each.fence, b"result") for each in held])


async def extend(store: PostgresStore, held: list[Leased]) -> list[Answer]:
    return await store.extend([Extension(each.id, each.fence, 60.0) for each in held])


async def nack(store: PostgresStore, held: list[Leased]) -> list[Answer]:
    leases = await store.leases([Lock(each.id, each.fence) for each in held])
    moves = [settle(lease, Nack("no"), QueueSettings()) for lease in leases if lease is not None]
    assert len(moves) == len(held)
    return await store.settle(moves)


async def progress(store: PostgresStore, held: list[Leased]) -> list[Answer]:
    return await store.mark([Mark(each.id, each.fence, percent=50.0) for each in held])


async def cancel(store: PostgresStore, held: list[Leased]) -> list[Answer]:
    return await store.cancel([each.id for each in held])


async def cancel_now(store: PostgresStore, held: list[Leased]) -> list[Answer]:
    return await store.cancel([each.id for each in held], force=True)


Batch = Callable[[PostgresStore, list[Leased]], Awaitable[list[Answer]]]


@pytest.mark.parametrize(
    "batch", [complete, complete_with_results, extend, nack, progress, cancel, cancel_now]
)
async def test_a_lease_that_is_held_is_busy_and_the_rest_of_the_batch_is_done(
    store: PostgresStore, url: str, batch: Batch
) -> None:
    await publish(store, 10)
    held = await claim(store)
    async with holding(url, held[4].id):
        with anyio.fail_after(CAP):
            answers = await batch(store, held)
    assert [answer.kind for answer in answers] == ["done"] * 4 + ["busy"] + ["done"] * 5


@pytest.mark.parametrize("batch", [complete, extend, nack])
async def test_a_lease_that_was_held_is_done_when_it_is_free_again(
    store: PostgresStore, url: str, batch: Batch
) -> None:
    await publish(store, 2)
    held = await claim(store)
    async with holding(url, held[0].id):
        assert [answer.kind for answer in await batch(store, held[:1])] == ["busy"]
    assert [answer.kind for answer in await batch(store, held)] == ["done", "done"]


async def test_a_message_that_is_held_is_stepped_over_by_a_claim(
    store: PostgresStore, url: str
) -> None:
    ids = await publish(store, 3)
    async with transaction(url) as connection:
        await connection.execute("SELECT FROM penstock.ready WHERE id = $1 FOR UPDATE", ids[0])
        assert [each.id for each in await claim(store)] == ids[1:]
    assert [each.id for each in await claim(store)] == ids[:1]


async def test_a_scheduled_message_that_is_held_keeps_no_other_from_its_promotion(
    store: PostgresStore, url: str
) -> None:
    entries = [Entry(QUEUE, "test", b"", delay=0.001) for _ in range(3)]
    held, *rest = [each.id for each in await store.enqueue(entries)]
    async with transaction(url) as connection:
        await connection.execute("SELECT FROM penstock.scheduled WHERE id = $1 FOR UPDATE", held)
        with anyio.fail_after(CAP):
            while (await places(store)).get("ready") != 2:
                await store.promote(10)
        assert [each.id for each in await claim(store)] == rest


def make_deduped(key: str, body: bytes = b"") -> Entry:
    dedup = Dedupe(key, hashlib.sha256(body).digest(), 60.0)
    return Entry(QUEUE, "test", body, dedup=dedup)


@asynccontextmanager
async def publishing(store: PostgresStore, url: str, entry: Entry) -> AsyncIterator[None]:
    """Somebody publishes the entry in a transaction that stays open."""
    async with transaction(url) as connection:
        await store.aenqueue_on(connection, [entry])
        yield


async def test_a_key_about_to_be_decided_is_busy_and_the_rest_of_the_batch_is_published(
    store: PostgresStore, url: str
) -> None:
    async with publishing(store, url, make_deduped("held")):
        keys = ["one", "held", "two"]
        with anyio.fail_after(CAP):
            outcomes = await store.enqueue([make_deduped(key) for key in keys])
        assert [outcome.code for outcome in outcomes] == [None, Busy.code, None]
        assert (await places(store))["ready"] == 2
    (outcome,) = await store.enqueue([make_deduped("held")])
    assert outcome.code is None
    assert not outcome.duplicate


async def test_a_key_about_to_be_decided_delays_no_other_publish(
    store: PostgresStore, url: str
) -> None:
    broker = Broker(store)
    await broker.publish(make_keyed("first"))
    async with publishing(store, url, await broker.admit(make_keyed("held"))):
        stuck = asyncio.ensure_future(broker.publish(make_keyed("held")))
        await asyncio.sleep(0)
        others = [broker.publish(make_keyed(f"other {number}")) for number in range(10)]
        plain = [broker.publish(Draft()) for _ in range(10)]
        with anyio.fail_after(CAP):
            published = await asyncio.gather(*others, *plain)
        assert not stuck.done()
        assert len({each.id for each in published}) == 20
        with pytest.raises(Busy):
            await stuck


def make_keyed(key: str) -> Draft:
    return Draft(dedup=Dedup(key))


async def test_publishers_of_one_key_at_once_publish_one_message(url: str) -> None:
    async with await open_store(url) as one, await open_store(url) as other:
        brokers = [Broker(one), Broker(other)]
        drafts = [brokers[n % 2].publish(make_keyed("same")) for n in range(20)]
        with anyio.fail_after(CAP):
            published = await asyncio.gather(*drafts)
        assert len({each.id for each in published}) == 1
        assert sum(not each.duplicate for each in published) == 1
        assert await places(one) == {"message": 1, "ready": 1}


MANY = 1_000
QUEUES = f"""
INSERT INTO penstock.queue (scope_id, name, settings)
SELECT scope_id, 'queue' || number, settings
FROM penstock.queue, generate_series(1, {MANY}) AS number WHERE id = {QUEUE} RETURNING id
"""


async def test_a_thousand_queues_are_served_each_by_its_own(store: PostgresStore, url: str) -> None:
    queues = [int(row["id"]) for row in await execute(url, QUEUES)]
    published: list[Published] = await store.enqueue([Entry(id, "test", b"") for id in queues])
    taken = [(await store.claim(Claim((id,), "tester", 10))).messages for id in queues]
    assert [[each.id for each in messages] for messages in taken] == [[p.id] for p in published]
    assert [each.queue_id for messages in taken for each in messages] == queues


@pytest.mark.parametrize("verb", ["redrive", "purge_dead"])
async def test_a_dead_letter_that_another_transaction_locks_is_busy_alone(
    store: PostgresStore, url: str, verb: str
) -> None:
    held, free = await publish(store, 2)
    leased = await claim(store)
    await Broker(store).settle_many([(each, SettleReject("no")) for each in leased])
    async with connect(url) as other, other.transaction():
        await other.execute(f"SELECT 1 FROM penstock.dead WHERE id = {held} FOR UPDATE")
        answers = await getattr(store, verb)([held, free])
        assert [answer.kind for answer in answers] == ["busy", "done"]
        with pytest.raises(Busy):
            await Broker(store).admin.edit(held, b"edited")
    assert [answer.kind for answer in await getattr(store, verb)([held])] == ["done"]
