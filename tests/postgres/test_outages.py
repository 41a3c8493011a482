"""What a server, a backend or the network does in the middle: said truthfully, and got over."""

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import anyio
import asyncpg
import pytest

from penstock.errors import Busy, OutcomeUnknown, StoreBusy, StoreError, StoreUnreachable
from penstock.model.store_types import Completion, Dedupe, Entry, Lock
from penstock.stores.postgres import store as postgres_store
from penstock.stores.postgres import transaction
from penstock.stores.postgres.connection import PostgresDsn, parse
from penstock.stores.postgres.store import PostgresStore
from penstock.stores.postgres.transaction import PostgresStatement
from tests.postgres.scenes import CAP, QUEUE, claim, execute, open_store, places, publish
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio

T = TypeVar("T")
# What is promised, and the time a busy machine takes to say so.
DEADLINE, LATE = 5.0, 10.0
OURS = "application_name = 'penstock' AND datname = current_database()"
KILL = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {OURS}"


@pytest.fixture
async def proxy(postgres_server: Postgres) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
async def far(url: str, proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """A store behind the proxy, with a connection at hand."""
    async with await open_store(proxy.url(url)) as store:
        await store.now()
        yield store
        proxy.heal()


async def soon(work: Callable[[], Awaitable[object]]) -> None:
    """It works again by itself, whatever was said on the way."""
    with anyio.fail_after(CAP):
        while True:
            try:
                await work()
                return
            except StoreError:
                await anyio.sleep(0.01)


async def publish_keyed(store: PostgresStore, key: str) -> tuple[int, bool]:
    """Publishes with a dedup key; its id, and whether it was there.

    The transaction of a connection that was cut may hold the key for a moment: BUSY.
    """
    dedup = Dedupe(key, hashlib.sha256(b"").digest(), 60.0)
    with anyio.fail_after(CAP):
        while True:
            (published,) = await store.enqueue([Entry(QUEUE, "test", b"", dedup=dedup)])
            if published.code != Busy.code:
                return published.id, published.duplicate
            await anyio.sleep(0.01)


@pytest.mark.parametrize("interrupt", [Postgres.restart, Postgres.kill], ids=["restart", "crash"])
async def test_a_store_works_again_when_its_server_does(
    store: PostgresStore, postgres_server: Postgres, interrupt: Callable[[Postgres], None]
) -> None:
    await publish(store, 3)
    held = await claim(store, 1)
    await anyio.to_thread.run_sync(interrupt, postgres_server)
    if interrupt is Postgres.kill:
        with pytest.raises(StoreUnreachable):
            await soon_refused(store)
        postgres_server.start()
    await soon(lambda: places(store))
    answers = await store.complete([Completion(held[0].id, held[0].fence)])
    assert [answer.kind for answer in answers] == ["done"]
    assert await places(store) == {"message": 3, "ready": 2, "ended": 1}


async def soon_refused(store: PostgresStore) -> None:
    """Asks until no connection is left that is not known to be gone."""
    with anyio.fail_after(CAP):
        while True:
            try:
                await places(store)
            except OutcomeUnknown:
                continue


async def test_backends_killed_while_idle_cost_one_call_at_most(
    store: PostgresStore, url: str
) -> None:
    await asyncio.gather(*(publish(store) for _ in range(4)))
    await execute(url, KILL)
    at_once = [await catch_store_error(publish(store)) for _ in range(4)]
    assert {type(each) for each in at_once[1:]} == {list}
    assert type(at_once[0]) in (list, OutcomeUnknown)


async def catch_store_error(work: Awaitable[T]) -> T | StoreError:
    try:
        return await work
    except StoreError as error:
        return error


async def test_what_was_published_while_backends_were_killed_is_there_once(
    store: PostgresStore, url: str
) -> None:
    accepted: list[int] = []
    unknown = 0
    for _ in range(20):
        outcomes = await asyncio.gather(
            *(publish(store) for _ in range(4)), execute(url, KILL), return_exceptions=True
        )
        for outcome in outcomes[:-1]:
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, OutcomeUnknown | StoreUnreachable)
                unknown += isinstance(outcome, OutcomeUnknown)
            else:
                accepted += outcome
    rows = await execute(url, "SELECT id FROM penstock.message")
    stored = {row["id"] for row in rows}
    assert len(accepted) == len(set(accepted))
    assert set(accepted) <= stored
    assert len(stored) <= len(accepted) + unknown


@pytest.mark.parametrize(("cut", "stored"), [("before", 0), ("after", 1)])
async def test_a_publish_that_was_cut_off_is_unknown_and_never_doubled(
    far: PostgresStore, proxy: Proxy, store: PostgresStore, cut: str, stored: int
) -> None:
    await publish(far)
    # What is bound and executed, not what is only prepared: it has the body.
    arm = proxy.cut_before_request if cut == "before" else proxy.cut_after_request
    struck = arm(containing=b"the body")
    with pytest.raises(OutcomeUnknown, match="did not answer; the change may have been made"):
        await publish(far, body=b"the body")
    assert struck.is_set()
    assert await places(store) == {"message": 1 + stored, "ready": 1 + stored}
    await publish(far)
    assert await places(far) == {"message": 2 + stored, "ready": 2 + stored}


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_transaction_that_was_cut_off_at_its_commit_is_unknown(
    far: PostgresStore, proxy: Proxy, cut: str
) -> None:
    arm = proxy.cut_before_request if cut == "before" else proxy.cut_after_request
    struck = arm(containing=b"COMMIT")
    with pytest.raises(OutcomeUnknown):
        await publish_keyed(far, "once")
    assert struck.is_set()
    id, duplicate = await publish_keyed(far, "once")
    assert duplicate == (cut == "after")
    assert await places(far) == {"message": 1, "ready": 1}
    assert [each.id for each in await claim(far)] == [id]


async def test_a_transaction_that_was_cut_off_before_its_commit_did_not_happen(
    far: PostgresStore, proxy: Proxy
) -> None:
    await publish_keyed(far, "other")
    struck = proxy.cut_after_request(containing=b"once")
    with pytest.raises(StoreUnreachable):
        await publish_keyed(far, "once")
    assert struck.is_set()
    assert await publish_keyed(far, "once") == (await newest(far), False)


async def newest(store: PostgresStore) -> int:
    return max(each.id for each in await claim(store))


async def test_a_read_that_was_cut_off_has_no_outcome_to_wonder_about(
    far: PostgresStore, proxy: Proxy
) -> None:
    reads: list[Callable[[], Awaitable[object]]] = [
        far.now,
        far.census,
        lambda: far.leases([Lock(1, 1)]),
        lambda: far.hot.any_ready([1]),
        lambda: far.expired_leases(10),
        lambda: far.get(1),
    ]
    for read in reads:
        await soon(read)
        proxy.cut_after_request()
        with pytest.raises(StoreUnreachable):
            await read()


async def test_a_claim_that_was_cut_off_is_handed_out_to_nobody_else(
    far: PostgresStore, proxy: Proxy, store: PostgresStore
) -> None:
    await publish(far, 2)
    await claim(far, 1, "first")
    struck = proxy.cut_after_request(containing=b"second")
    with pytest.raises(OutcomeUnknown):
        await claim(far, 1, "second")
    assert struck.is_set()
    assert await places(store) == {"message": 2, "lease": 2}


async def test_a_completion_that_was_cut_off_is_found_done_when_it_is_repeated(
    far: PostgresStore, proxy: Proxy
) -> None:
    await publish(far, 2)
    first, second = await claim(far)
    await far.complete([Completion(first.id, first.fence)])
    # Its own request, by the bound fence: a late notice of the publish must not take the cut.
    fence = struct.pack("!iq", 8, second.fence)
    struck = proxy.cut_after_request(containing=fence, answer=b"INSERT 0 1")
    with pytest.raises(OutcomeUnknown):
        await far.complete([Completion(second.id, second.fence)])
    assert struck.is_set()
    (answer,) = await far.complete([Completion(second.id, second.fence)])
    assert (answer.kind, answer.state) == ("already", "completed")


@pytest.mark.parametrize("lost", ["requests", "answers"])
async def test_a_connection_that_falls_silent_is_given_up_in_time(
    far: PostgresStore, proxy: Proxy, store: PostgresStore, lost: str
) -> None:
    await asyncio.gather(*(publish(far) for _ in range(3)))
    proxy.lose(lost)
    began = anyio.current_time()
    with pytest.raises(OutcomeUnknown):
        await publish(far)
    assert anyio.current_time() - began < LATE
    assert far.database.pool.idle == []
    proxy.heal()
    await publish(far)
    stored = 4 if lost == "requests" else 5
    assert await places(store) == {"message": stored, "ready": stored}


async def test_a_server_that_takes_connections_and_says_nothing_is_given_up_in_time(
    far: PostgresStore, proxy: Proxy
) -> None:
    proxy.lose()
    proxy.cut()
    began = anyio.current_time()
    with pytest.raises(StoreUnreachable):
        await soon_refused(far)
    assert anyio.current_time() - began < LATE
    proxy.heal()
    await soon(lambda: publish(far))


async def test_a_pool_with_nothing_left_says_how_to_make_it_larger(url: str) -> None:
    async with await open_store(url, pool_size=2) as store:
        store.database.pool.acquire_timeout_s = 0.05
        async with store.database.pool.use(), store.database.pool.use():
            with pytest.raises(StoreBusy, match=r"all 2 connections were in use.*pool_size"):
                await publish(store)
        assert await publish(store) == [1]


async def test_whoever_leaves_the_line_for_a_connection_takes_nobody_elses_turn(url: str) -> None:
    async with await open_store(url, pool_size=2) as store:
        async with store.database.pool.use(), store.database.pool.use():
            leaving = [asyncio.ensure_future(publish(store)) for _ in range(3)]
            staying = asyncio.ensure_future(publish(store))
            with anyio.fail_after(CAP):
                while len(store.database.pool.waiting) < 4:  # noqa: ASYNC110 - there is no event for it
                    await anyio.sleep(0.001)
            leaving[0].cancel()
        # Their turn has come, and they have not heard of it yet.
        for task in leaving:
            task.cancel()
        with anyio.fail_after(DEADLINE):
            await staying
        await asyncio.gather(*leaving, return_exceptions=True)


async def test_a_call_that_is_cancelled_leaves_nothing_behind(
    store: PostgresStore, url: str
) -> None:
    await publish(store)
    task = asyncio.ensure_future(publish_keyed(store, "late"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await publish_keyed(store, "late") == (await newest(store), False)
    # Of this database: others of the same server are in use, too.
    open_for = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
    )
    async with asyncio.timeout(CAP):
        while (await execute(url, open_for))[0][0]:
            pass


async def test_the_census_has_a_time_limit_of_its_own(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = PostgresStatement("SELECT 1, 'message', 1, 1 FROM pg_sleep(3)", ())
    monkeypatch.setitem(transaction.SQL, "census", slow)
    monkeypatch.setattr(transaction, "SCAN_TIMEOUT_S", 0.1)
    with pytest.raises(StoreUnreachable):
        await store.census()


async def test_a_store_that_is_closed_while_it_connects_leaves_no_connection(
    url: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = PostgresStatement("SELECT pg_sleep(60)", ())
    monkeypatch.setitem(transaction.SQL, "slow", slow)
    monkeypatch.setattr(postgres_store, "WARM_UP", (("slow", {}),))
    opened: list[asyncpg.Connection] = []
    connect = PostgresDsn.connect

    async def note(address: PostgresDsn) -> asyncpg.Connection:
        opened.append(await connect(address))
        return opened[-1]

    monkeypatch.setattr(PostgresDsn, "connect", note)
    warming = asyncio.create_task(postgres_store.connect_warm(parse(url)))
    while not opened:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)
    warming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await warming
    assert opened[0].is_closed()
