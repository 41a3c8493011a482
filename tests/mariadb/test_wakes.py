"""Who waits finds the work of other processes: the server looks for it, or Redis tells."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import count

import anyio
import pytest
from asyncmy.errors import MySQLError

from penstock import stores
from penstock.errors import InvalidInput, StoreUnreachable
from penstock.model.store_types import AnswerKind, Completion, Entry
from penstock.stores.mariadb.notifier import MAX_NOTIFIED_QUEUES, LocalWakeups
from penstock.stores.mariadb.redis_notifier import RedisPubSub
from penstock.stores.mariadb.statement import fill_statement
from penstock.stores.mariadb.store import MariaStore
from tests.mariadb.scenes import CAP, QUEUE, claim, open_store, publish, wait_for, wait_until
from tests.servers.mariadb import MariaDB
from tests.servers.places import free_port
from tests.servers.redis import Redis

pytestmark = pytest.mark.anyio

# Longer than any test: who returns before was woken.
LONG = 1_000.0


@pytest.fixture
async def other(url: str) -> AsyncIterator[MariaStore]:
    async with await open_store(url) as store:
        yield store


async def claim_ids(store: MariaStore) -> list[int]:
    while not (taken := await claim(store)):
        await store.wait_ready([QUEUE], LONG, store.wakes)
    return [each.id for each in taken]


async def looking(store: MariaStore) -> "asyncio.Future[None]":
    """Somebody waits, and the lookout knows of all there is."""
    heard = store.notifier.wait([QUEUE])
    store.notifier.poller.begin()
    await wait_for(lambda: store.notifier.poller.session is not None)
    return heard


async def test_a_waiter_finds_what_another_process_published(
    store: MariaStore, other: MariaStore
) -> None:
    waiting = asyncio.ensure_future(claim_ids(store))
    await wait_for(lambda: store.notifier.poller.session is not None)
    ids = await publish(other)
    assert await asyncio.wait_for(waiting, CAP) == ids


async def test_a_waiter_is_told_of_its_queue_only(store: MariaStore, other: MariaStore) -> None:
    heard = await looking(store)
    elsewhere = store.notifier.wait([QUEUE + 1])
    *_, last = await publish(other, 3)
    await asyncio.wait_for(heard, CAP)
    assert (elsewhere.done(), store.notifier.poller.seen) == (False, last)
    elsewhere.cancel()


async def test_a_waiter_finds_what_became_ready_again(store: MariaStore, other: MariaStore) -> None:
    await other.enqueue([Entry(QUEUE, "test", b"", delay=0.001)])
    heard = await looking(store)
    await wait_until(lambda: promote(other))
    await asyncio.wait_for(heard, CAP)


async def promote(store: MariaStore) -> bool:
    return (await store.promote(10)).count > 0


async def test_with_nobody_waiting_nobody_looks(store: MariaStore) -> None:
    await store.wait_ready([QUEUE], 0.01, store.wakes)
    await wait_for(lambda: store.notifier.poller.task is None)


async def test_a_lookout_whose_session_was_killed_looks_again(
    store: MariaStore, other: MariaStore, mariadb_server: MariaDB
) -> None:
    waiting = asyncio.ensure_future(claim_ids(store))
    await wait_for(lambda: store.notifier.poller.session is not None)
    assert store.notifier.poller.session is not None
    mariadb_server.execute(f"KILL {store.notifier.poller.session.connection.thread_id()}")
    ids = await publish(other)
    assert await asyncio.wait_for(waiting, CAP) == ids


async def test_what_was_published_before_a_wait_is_not_waited_for(
    store: MariaStore, other: MariaStore
) -> None:
    await publish(other)
    with anyio.fail_after(CAP):
        await store.wait_ready([QUEUE], LONG)
        assert len(await claim(store)) == 1


async def test_a_closed_store_waits_and_looks_no_more(url: str) -> None:
    async with await open_store(url) as store:
        heard = await looking(store)
    await asyncio.wait_for(heard, CAP)
    assert store.notifier.poller.task is None


# Whoever publishes rings.


async def sleeping(store: MariaStore) -> "asyncio.Task[list[tuple[int]]]":
    """Fails if somebody ends its sleep."""
    session = await store.dialect.address.connect()
    session.deadline = None
    listening = store.notifier.poller.wakeups.listen([QUEUE])
    task = asyncio.create_task(session.rows(*listening, f"SELECT sleep({LONG})"))
    task.add_done_callback(lambda _: session.terminate())
    return task


@pytest.mark.parametrize("name", [None, "one"], ids=["plain", "checked"])
async def test_a_publish_ends_the_sleep_of_who_listens(
    store: MariaStore, other: MariaStore, name: str | None
) -> None:
    heard = await sleeping(store)
    with anyio.fail_after(CAP):
        for number in count():
            if heard.done():
                break
            named = None if name is None else f"{name}{number}"
            await other.enqueue([Entry(QUEUE, "test", b"", name=named)])
    with pytest.raises(MySQLError, match="interrupted"):
        await heard


async def test_who_listens_to_another_queue_sleeps_on(store: MariaStore, other: MariaStore) -> None:
    heard = await sleeping(store)
    for _ in range(20):
        await other.enqueue([Entry(QUEUE + 1, "test", b"")])
    assert not heard.done()
    heard.cancel()


async def test_a_lookout_goes_on_after_many_rings(store: MariaStore, other: MariaStore) -> None:
    waiting = asyncio.ensure_future(claim_ids(store))
    await wait_for(lambda: store.notifier.poller.session is not None)
    session = store.notifier.poller.session
    lock = other.notifier.poller.wakeups.lock(QUEUE)
    for _ in range(100):
        await other.dialect.send_packet(fill_statement("ring", lock=lock))
    ids = await publish(other)
    assert await asyncio.wait_for(waiting, CAP) == ids
    assert store.notifier.poller.session is session


async def test_who_may_not_ring_publishes_all_the_same(
    store: MariaStore, mariadb_server: MariaDB, url: str
) -> None:
    database = url.rpartition("/")[2]
    mariadb_server.execute(
        f"CREATE USER {database}@'127.0.0.1'; GRANT ALL ON {database}.* TO {database}@'127.0.0.1'"
    )
    waiting = asyncio.ensure_future(claim_ids(store))
    listener = f"SELECT is_used_lock('{store.notifier.poller.wakeups.lock(QUEUE)}')"
    await wait_for(lambda: mariadb_server.execute(listener) != [(None,)])
    async with await open_store(mariadb_server.url(database, database)) as plain:
        ids = await publish(plain)
    assert await asyncio.wait_for(waiting, CAP) == ids


def test_a_queue_is_rung_for_once_in_a_while() -> None:
    bell = LocalWakeups("seal")
    first, again, more = bell.ring([1, 2]), bell.ring([2]), bell.ring(range(100))
    assert (len(first), again, len(more)) == (2, [], MAX_NOTIFIED_QUEUES)


# With a Redis beside it.


@pytest.fixture
def wake(redis_server: Redis) -> str:
    return redis_server.url()


@pytest.fixture
async def told(url: str, wake: str) -> AsyncIterator[MariaStore]:
    async with await open_store(url, wake=wake) as store:
        yield store


@pytest.fixture
async def teller(url: str, wake: str) -> AsyncIterator[MariaStore]:
    async with await open_store(url, wake=wake) as store:
        yield store


async def hearing(store: MariaStore) -> None:
    store.notifier.listen()
    await wait_for(lambda: store.notifier.hears)


async def woken(store: MariaStore) -> "asyncio.Future[None]":
    """Ends when the store hears of the queue; by nothing else."""
    await hearing(store)
    return store.notifier.wait([QUEUE])


async def test_redis_wakes_a_waiter_of_another_process(
    told: MariaStore, teller: MariaStore
) -> None:
    heard = await woken(told)
    await publish(teller)
    await asyncio.wait_for(heard, CAP)
    assert told.notifier.poller.session is None


async def test_redis_tells_of_promotions_and_of_checked_publishes(
    told: MariaStore, teller: MariaStore
) -> None:
    await teller.enqueue([Entry(QUEUE, "test", b"", delay=0.001)])
    heard = await woken(told)
    await wait_until(lambda: promote(teller))
    await asyncio.wait_for(heard, CAP)
    heard = await woken(told)
    await teller.enqueue([Entry(QUEUE, "test", b"", name="mine")])
    await asyncio.wait_for(heard, CAP)


async def test_stores_that_share_a_redis_do_not_wake_each_other(
    told: MariaStore, teller: MariaStore, mariadb_server: MariaDB, wake: str
) -> None:
    with mariadb_server.database() as elsewhere:
        async with await open_store(elsewhere, wake=wake) as stranger:
            strange = await woken(stranger)
            heard = await woken(told)
            await publish(teller)
            await asyncio.wait_for(heard, CAP)
            assert not strange.done()
            strange.cancel()


async def test_many_publishes_are_told_of_together(
    told: MariaStore, teller: MariaStore, redis_server: Redis
) -> None:
    with redis_server.connect() as redis:
        before = redis.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"]
        for _ in range(50):
            await asyncio.gather(*(publish(teller) for _ in range(4)))
        await wait_for(
            lambda: isinstance(teller.notifier, RedisPubSub) and not teller.notifier.sending
        )
        after = redis.info("commandstats")["cmdstat_publish"]["calls"]
    assert 1 <= after - before < 200


@pytest.mark.parametrize("words", ["", "nonsense", "2,x", "-1", "9" * 40])
async def test_a_notice_that_makes_no_sense_does_no_harm(
    told: MariaStore, teller: MariaStore, redis_server: Redis, words: str
) -> None:
    heard = await woken(told)
    assert isinstance(told.notifier, RedisPubSub)
    with redis_server.connect() as redis:
        redis.publish(told.notifier.channel, words)
    await publish(teller)
    await asyncio.wait_for(heard, CAP)


async def test_without_redis_everything_goes_on_by_looking(url: str) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    async with (
        await open_store(url, wake=nowhere) as store,
        await open_store(url, wake=nowhere) as other,
    ):
        waiting = asyncio.ensure_future(claim_ids(store))
        await wait_for(lambda: store.notifier.poller.session is not None)
        ids = await publish(other)
        assert await asyncio.wait_for(waiting, CAP) == ids
        checks = {check.name: check for check in await store.examine()}
        assert not checks["wake"].ok
        assert "cannot be reached" in checks["wake"].text


async def test_a_redis_that_stops_and_comes_back_is_heard_again(url: str) -> None:
    with Redis() as server:
        async with (
            await open_store(url, wake=server.url()) as store,
            await open_store(url, wake=server.url()) as other,
        ):
            await hearing(store)
            server.kill()
            await wait_for(lambda: not store.notifier.hears)
            waiting = asyncio.ensure_future(claim_ids(store))
            ids = await publish(other)
            assert await asyncio.wait_for(waiting, CAP) == ids
            server.start()
            heard = await woken(store)
            await publish(other)
            await asyncio.wait_for(heard, CAP)


async def test_a_redis_that_forgets_everything_changes_nothing(
    told: MariaStore, teller: MariaStore, redis_server: Redis
) -> None:
    await hearing(told)
    with redis_server.connect() as redis:
        redis.flushall()
    heard = told.notifier.wait([QUEUE])
    await publish(teller)
    await asyncio.wait_for(heard, CAP)
    assert {check.name: check.ok for check in await told.examine()}["wake"]


COUNT = 200


async def test_a_redis_that_stops_and_forgets_under_load_loses_and_doubles_nothing(
    url: str,
) -> None:
    with Redis() as server:
        wake = server.url()
        befall: dict[int, Callable[[], object]] = {
            50: server.kill,
            100: server.start,
            150: partial(forget, server),
        }
        done: list[int] = []
        async with (
            await open_store(url, wake=wake) as store,
            await open_store(url, wake=wake) as other,
        ):
            consuming = asyncio.ensure_future(consume(store, done))
            for number in range(COUNT):
                if number in befall:
                    befall[number]()
                await publish(other)
            with anyio.fail_after(CAP):
                await consuming
        assert sorted(done) == list(range(1, COUNT + 1))


def forget(server: Redis) -> None:
    with server.connect() as redis:
        redis.flushall()


async def consume(store: MariaStore, done: list[int]) -> None:
    while len(done) < COUNT:
        before = store.wakes
        taken = await claim(store, 10)
        if not taken:
            await store.wait_ready([QUEUE], LONG, before)
        answers = await store.complete([Completion(each.id, each.fence) for each in taken])
        assert {each.kind for each in answers} <= {AnswerKind.DONE}
        done += [each.id for each in taken]


@pytest.mark.parametrize("wake", ["http://there", "redis", "redis://host:port"])
async def test_a_wake_that_cannot_be_read_is_named(url: str, wake: str) -> None:
    with pytest.raises(InvalidInput, match="wake"):
        await stores.open(f"{url}?wake={wake}")


@pytest.mark.parametrize("wake", ["redis://:hush-hush@host:port/0", "rediss://u:hush/hush@host"])
async def test_a_wake_that_cannot_be_read_is_named_without_its_password(
    url: str, wake: str
) -> None:
    with pytest.raises(InvalidInput, match=r"wake=redis.*cannot be read") as refused:
        await stores.open(f"{url}?wake={wake}")
    assert "hush" not in str(refused.value)


async def test_a_redis_says_nothing_of_a_database_that_is_away(wake: str) -> None:
    nowhere = f"mariadb://penstock@127.0.0.1:{free_port()}/queue"
    with pytest.raises(StoreUnreachable):
        await stores.open(f"{nowhere}?wake={wake}")
