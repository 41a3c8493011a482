"""What a server or the network does in the middle: said truthfully, and got over."""

from collections.abc import AsyncIterator

import anyio
import pytest

from penstock.errors import OutcomeUnknown, StoreFull, StoreUnreachable
from penstock.model.store_types import Completion, Cursor, Lock
from penstock.stores.redis.store import RedisStore
from tests.redis.scenes import CAP, QUEUE, claim, open_store, places, publish, soon
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis

pytestmark = pytest.mark.anyio


@pytest.fixture
async def proxy(redis_server: Redis) -> AsyncIterator[Proxy]:
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def far(url: str, proxy: Proxy) -> AsyncIterator[RedisStore]:
    """A store behind the proxy, with a connection at hand."""
    async with await open_store(proxy.url(url)) as store:
        yield store
        proxy.heal()


async def test_what_was_confirmed_outlives_the_server() -> None:
    with Redis() as server:
        async with await open_store(server.url()) as store:
            ids = await publish(store, 3)
            (held,) = await claim(store, 1)
            server.kill()
            with pytest.raises((StoreUnreachable, OutcomeUnknown)):
                await publish(store)
            server.start()
            await soon(lambda: places(store))
            answers = await store.complete([Completion(held.id, held.fence)])
            assert [answer.kind for answer in answers] == ["done"]
            assert await places(store) == {"message": 3, "ready": 2, "ended": 1}
            # Numbers that may have been handed out and forgotten are not handed out again.
            assert (await publish(store))[0] > ids[-1] + 2**20
            assert (await claim(store, 1))[0].fence > held.fence + 2**20
            assert (await store.feed(Cursor(), 10)).cursor.epoch == 0


async def test_a_weaker_server_that_was_started_anew_begins_an_epoch() -> None:
    with Redis({"appendfsync": "everysec"}) as server:
        async with await open_store(f"{server.url()}?durability=fast") as store:
            await publish(store)
            server.restart()
            await soon(lambda: places(store))
            assert (await store.feed(Cursor(), 10)).cursor.epoch == 1


async def test_a_lost_answer_is_an_unknown_outcome(far: RedisStore, proxy: Proxy) -> None:
    await publish(far)
    cut = proxy.cut_after_request(b"EVALSHA")
    with pytest.raises(OutcomeUnknown):
        await publish(far)
    assert cut.is_set()
    assert await places(far) == {"message": 2, "ready": 2}


async def test_a_lost_request_was_not_done(far: RedisStore, proxy: Proxy) -> None:
    await publish(far)
    proxy.cut_before_request(b"EVALSHA")
    with pytest.raises(OutcomeUnknown):
        await publish(far)
    assert await places(far) == {"message": 1, "ready": 1}


async def test_a_server_that_takes_nobody_in_is_unreachable(far: RedisStore, proxy: Proxy) -> None:
    proxy.refuse()
    proxy.cut()
    with pytest.raises(StoreUnreachable):
        await soon_refused(far)


async def soon_refused(store: RedisStore) -> None:
    """Asks until no connection is left that is not known to be gone."""
    with anyio.fail_after(CAP):
        while True:
            try:
                await publish(store)
            except OutcomeUnknown:
                continue


async def test_scripts_that_the_server_forgot_are_told_again(
    store: RedisStore, redis_server: Redis
) -> None:
    await publish(store)
    with redis_server.connect() as outside:
        outside.script_flush()
    (held,) = await claim(store)
    with redis_server.connect() as outside:
        outside.script_flush()
    assert [a.kind for a in await store.complete([Completion(held.id, held.fence)])] == ["done"]


async def test_a_full_server_takes_no_more_and_lets_go_of_what_is_done() -> None:
    with Redis() as server:
        async with await open_store(server.url()) as store:
            await publish(store, 10)
            held = await claim(store, 5)
            with server.connect() as outside:
                outside.config_set("maxmemory", 1)
                with pytest.raises(StoreFull, match="is out of memory"):
                    await publish(store)
                with pytest.raises(StoreFull):
                    await claim(store)
                answers = await store.complete([Completion(m.id, m.fence) for m in held])
                assert [answer.kind for answer in answers] == ["done"] * 5
                outside.config_set("maxmemory", 0)
            assert await places(store) == {"message": 10, "ready": 5, "ended": 5}


async def test_a_primary_that_became_a_replica_takes_no_more(redis_server: Redis, url: str) -> None:
    with Redis() as server:
        async with await open_store(server.url()) as store:
            (id,) = await publish(store)
            with server.connect() as outside:
                outside.replicaof("127.0.0.1", server.port)
                with pytest.raises(StoreUnreachable, match="read-only"):
                    await publish(store)
                outside.replicaof("NO", "ONE")
            await soon(lambda: publish(store))
            assert await store.get(id) is not None


async def test_a_torn_claim_leaves_nothing_in_two_hands(
    store: RedisStore, redis_server: Redis
) -> None:
    """As by a server that keeps the first writes of a script, and not the last."""
    (id,) = await publish(store)
    with redis_server.connect() as outside:
        members = outside.zrange("{penstock}:ready", 0, -1)
        (held,) = await claim(store)
        outside.zadd("{penstock}:ready", dict.fromkeys(members, 0))
    assert await claim(store) == []
    assert await places(store) == {"message": 1, "lease": 1}
    assert [each is not None for each in await store.leases([Lock(id, held.fence)])] == [True]


async def test_a_waiter_hears_again_after_its_connection_was_cut(
    far: RedisStore, proxy: Proxy, store: RedisStore
) -> None:
    far.notifier.listen()
    await heard(far)
    proxy.cut()
    await heard(far)
    before = far.wakes
    await publish(store)
    with anyio.fail_after(CAP):
        while far.wakes == before:
            await far.wait_ready((QUEUE,), 1.0, before)


async def heard(store: RedisStore) -> None:
    with anyio.fail_after(CAP):
        while True:
            if store.notifier.hears:
                return
            await anyio.sleep(0.01)
