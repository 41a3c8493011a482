"""Who waits is told of work by other processes; a lost message costs a moment, never the work."""

import asyncio
from collections.abc import AsyncIterator

import anyio
import pytest

from penstock.errors import StoreUnreachable
from penstock.model.store_types import Entry
from penstock.stores.notifier import POLL_INTERVAL_DEAF_S, POLL_INTERVAL_LISTENING_S
from penstock.stores.postgres.notifier import CHANNEL
from penstock.stores.postgres.store import PostgresStore
from penstock.stores.postgres.transaction import PostgresTransaction
from tests.postgres.scenes import (
    CAP,
    QUEUE,
    claim,
    connect,
    execute,
    open_store,
    publish,
    wait_until,
)
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio

# Longer than any test: who returns before was woken.
LONG = 1_000.0
LISTENING = f"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE query ILIKE 'LISTEN %{CHANNEL}%' AND datname = current_database()
"""


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresStore]:
    async with await open_store(url) as store:
        yield store


async def hearing(store: PostgresStore) -> None:
    """It listens, and trusts that it would hear."""
    store.notifier.listen()
    with anyio.fail_after(CAP):
        while not store.notifier.hears:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.005)


async def woken(store: PostgresStore) -> "asyncio.Future[None]":
    """Ends when the store hears of the queue; by nothing else."""
    await hearing(store)
    return store.notifier.wait([QUEUE])


async def test_a_waiter_of_another_store_is_woken_by_a_publish(
    store: PostgresStore, other: PostgresStore
) -> None:
    heard = await woken(store)
    await publish(other)
    await asyncio.wait_for(heard, CAP)


async def test_a_waiter_hears_of_its_queue_only(store: PostgresStore, other: PostgresStore) -> None:
    heard = await woken(store)
    elsewhere = store.notifier.wait([QUEUE + 1])
    await publish(other)
    await asyncio.wait_for(heard, CAP)
    assert not elsewhere.done()
    elsewhere.cancel()


async def test_a_waiter_is_woken_by_a_promotion_and_by_a_checked_publish(
    store: PostgresStore, other: PostgresStore
) -> None:
    await other.enqueue([Entry(QUEUE, "test", b"", delay=0.001)])
    heard = await woken(store)
    await wait_until(lambda: promote(other))
    await asyncio.wait_for(heard, CAP)
    heard = await woken(store)
    await other.enqueue([Entry(QUEUE, "test", b"", name="mine")])
    await asyncio.wait_for(heard, CAP)


async def promote(store: PostgresStore) -> bool:
    return (await store.promote(10)).count > 0


async def test_a_waiter_hears_again_after_its_listener_was_killed(
    store: PostgresStore, other: PostgresStore, url: str
) -> None:
    await hearing(store)
    killed = store.notifier.connection
    assert await execute(url, LISTENING)
    with anyio.fail_after(CAP):
        # It may hear again before anybody sees that it did not.
        while store.notifier.connection is killed:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.001)
    heard = await woken(store)
    await publish(other)
    await asyncio.wait_for(heard, CAP)


async def test_a_waiter_hears_again_after_the_server_was_away(
    store: PostgresStore, other: PostgresStore, postgres_server: Postgres
) -> None:
    await hearing(store)
    postgres_server.stop()
    await wait_until(lambda: unreachable(store))
    postgres_server.start()
    await wait_until(lambda: reachable(other))
    heard = await woken(store)
    await publish(other)
    await asyncio.wait_for(heard, CAP)


async def reachable(store: PostgresStore) -> bool:
    try:
        await store.now()
    except StoreUnreachable:
        return False
    return True


async def unreachable(store: PostgresStore) -> bool:
    return not await reachable(store)


async def test_a_publish_succeeds_when_nobody_can_be_told(
    url: str, postgres_server: Postgres
) -> None:
    async with Proxy(postgres_server.port) as proxy, await open_store(proxy.url(url)) as store:
        struck = proxy.cut_before_request(containing=b"pg_notify")
        assert await publish(store) == [1]
        await asyncio.wait_for(struck.wait(), CAP)
        assert await publish(store) == [2]


async def test_who_cannot_listen_looks_often(url: str, postgres_server: Postgres) -> None:
    async with Proxy(postgres_server.port) as proxy, await open_store(proxy.url(url)) as store:
        await store.now()
        proxy.refuse()
        store.notifier.listen()
        assert store.notifier.longest_wait == POLL_INTERVAL_DEAF_S
        await proxy.accept()
        await hearing(store)
        assert store.notifier.longest_wait == POLL_INTERVAL_LISTENING_S


async def test_a_message_nobody_was_told_of_is_found_by_looking(
    store: PostgresStore, url: str
) -> None:
    await hearing(store)
    waiting = asyncio.ensure_future(claim_ids(store))
    await execute(url, SILENT)
    with anyio.fail_after(CAP):
        assert await waiting == [1]


# As by a process that died between its commit and its NOTIFY.
SILENT = f"""
WITH written AS (
    INSERT INTO penstock.message (queue_id, type, priority, rank, created_at, body)
    VALUES ({QUEUE}, 'test', 0, 0, 0, '') RETURNING id)
INSERT INTO penstock.ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT {QUEUE}, 0, id, 'test', 0, 0, 9007199254740991, 0 FROM written
"""


async def claim_ids(store: PostgresStore) -> list[int]:
    while not (taken := await claim(store)):
        await store.wait_ready([QUEUE], LONG)
    return [each.id for each in taken]


async def test_what_was_published_before_a_wait_is_not_waited_for(
    store: PostgresStore, other: PostgresStore
) -> None:
    await publish(other)
    with anyio.fail_after(CAP):
        await store.wait_ready([QUEUE], LONG)
        assert len(await claim(store)) == 1


async def test_many_publishes_are_told_of_together(store: PostgresStore, url: str) -> None:
    """A NOTIFY makes commits wait for each other: there are few, and none is with a publish."""
    told: list[str] = []
    tellers: set[int] = set()
    last = "end"

    def hear(_: object, pid: int, channel: str, words: object) -> None:
        told.append(str(words))
        tellers.add(pid)

    async with connect(url) as listener:
        await listener.add_listener(CHANNEL, hear)
        for _ in range(50):
            await asyncio.gather(*(publish(store) for _ in range(4)))
        publishers = {each.get_server_pid() for each in store.database.pool.idle}
        with anyio.fail_after(CAP):
            while store.notifier.sending is not None:  # noqa: ASYNC110 - there is no event for it
                await anyio.sleep(0.001)
        await say(url, last)
        with anyio.fail_after(CAP):
            while last not in told:  # noqa: ASYNC110 - there is no event for it
                await anyio.sleep(0.001)
    assert 1 <= len(told) - 1 < 200
    assert set(told) == {str(QUEUE), last}
    assert publishers
    assert not publishers & tellers


async def test_a_notice_of_very_many_queues_is_heard_by_all_of_them(
    store: PostgresStore, other: PostgresStore
) -> None:
    await hearing(store)
    many = range(1_000_000, 1_003_000)
    waiting = [store.notifier.wait([number]) for number in (many[0], many[1_500], many[-1])]
    other.notifier.notify(many)
    await asyncio.wait_for(asyncio.gather(*waiting), CAP)


async def say(url: str, words: str) -> None:
    await execute(url, f"SELECT pg_notify('{CHANNEL}', '{words}')")


@pytest.mark.parametrize("words", ["", "nonsense", "2,x", "-1", "9" * 40])
async def test_a_notice_that_makes_no_sense_does_no_harm(
    store: PostgresStore, other: PostgresStore, url: str, words: str
) -> None:
    heard = await woken(store)
    await say(url, words)
    await publish(other)
    await asyncio.wait_for(heard, CAP)


async def test_a_closed_store_listens_no_more(url: str) -> None:
    async with await open_store(url) as store:
        heard = await woken(store)
    await asyncio.wait_for(heard, CAP)
    await wait_until(lambda: nobody_of_ours(url))


async def test_a_call_that_outlives_its_store_opens_no_connection(url: str) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def work(tx: PostgresTransaction) -> None:
        began.set()
        await go_on.wait()
        tx.woken.add(QUEUE)

    async with await open_store(url) as store:
        late = asyncio.create_task(store.database.write(work))
        await began.wait()
    go_on.set()
    await late
    assert store.notifier.sending is None
    await wait_until(lambda: nobody_of_ours(url))


async def nobody_of_ours(url: str) -> bool:
    asked = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'penstock'"
    return not await execute(url, f"{asked} AND datname = current_database()")
