"""A server that cannot be used is said to be, in our words, with what to do about it."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import asyncpg
import pytest

from penstock import errors
from penstock.errors import InvalidInput, StoreError, StoreUnreachable, StoreUnusable
from penstock.stores.postgres.store import PostgresStore
from tests.postgres.scenes import execute, open_store, places, publish, with_options
from tests.servers.places import free_port
from tests.servers.postgres import GUARDED, PASSWORD, Postgres

pytestmark = pytest.mark.anyio


async def refusal(url: str, **options: object) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await open_store(url, **options)
    assert type(caught.value).__module__ == errors.__name__
    return caught.value


def add_password(url: str, password: str) -> str:
    return url.replace("penstock@", f"{GUARDED}:{password.replace(' ', '%20')}@")


async def test_a_wrong_password_is_said_and_not_repeated(url: str) -> None:
    error = await refusal(add_password(url, "wrong"))
    assert isinstance(error, StoreUnusable)
    assert "password authentication failed" in str(error)
    assert "wrong" not in str(error)


async def test_a_role_without_rights_is_told_which(url: str) -> None:
    error = await refusal(add_password(url, PASSWORD))
    assert isinstance(error, StoreUnusable)
    assert "permission denied" in str(error)
    assert PASSWORD not in str(error)


async def test_a_missing_database_is_named(postgres_server: Postgres) -> None:
    error = await refusal(postgres_server.url("nowhere"))
    assert isinstance(error, StoreUnusable)
    assert 'database "nowhere" does not exist' in str(error)


async def test_a_server_that_is_not_there_can_be_tried_again() -> None:
    error = await refusal(f"postgresql://penstock@127.0.0.1:{free_port()}/queue")
    assert isinstance(error, StoreUnreachable)
    assert "cannot be reached" in str(error)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"durability": "sometimes"}, "durability must be safe or fast"),
        ({"pooler": "yes"}, "pooler must be on or off"),
        ({"pool_size": "1"}, "pool_size must be a number from 2 to 1000"),
        ({"pool_size": "many"}, "pool_size must be a number from 2 to 1000"),
        ({"sslmode": "maybe"}, "sslmode"),
        ({"speed": "high"}, "speed"),
    ],
)
async def test_an_option_that_makes_no_sense_is_named(
    url: str, options: dict[str, object], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        await open_store(url, **options)


async def test_a_port_that_is_no_number_is_said() -> None:
    with pytest.raises(InvalidInput):
        await open_store("postgresql://penstock@127.0.0.1:many/queue")


async def test_a_table_that_is_gone_is_said_at_once_and_after_it_is_back(
    store: PostgresStore, url: str
) -> None:
    await publish(store)
    await execute(url, "ALTER TABLE penstock.message RENAME TO elsewhere")
    with pytest.raises(StoreUnusable, match=r"has an incomplete schema.*penstock\.message"):
        await publish(store)
    await execute(url, "ALTER TABLE penstock.elsewhere RENAME TO message")
    await publish(store)
    assert await places(store) == {"message": 2, "ready": 2}


async def test_a_read_only_server_is_read_and_not_written(url: str) -> None:
    name = url.rpartition("/")[2]
    await execute(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with await open_store(url) as store:
        await asyncio.gather(places(store), places(store))
        with pytest.raises(StoreUnreachable, match=r"is read-only \(a replica, or a failover"):
            await publish(store)
        await execute(url, f"ALTER DATABASE {name} RESET default_transaction_read_only", write=True)
        # No connection to a server that was read-only is used again.
        await publish(store)
        assert await places(store) == {"message": 1, "ready": 1}


async def test_a_new_database_that_is_read_only_is_left_alone(bare: str) -> None:
    name = bare.rpartition("/")[2]
    await execute(bare, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "read-only" in str(await refusal(bare))


@pytest.fixture(scope="module", params=["fsync", "full_page_writes"])
def careless(request: pytest.FixtureRequest) -> Iterator[tuple[Postgres, str]]:
    with Postgres({request.param: "off"}) as server:
        yield server, request.param


async def test_a_server_that_would_lose_messages_is_refused_by_safe(
    careless: tuple[Postgres, str],
) -> None:
    server, setting = careless
    with server.database() as url:
        error = await refusal(url)
        assert isinstance(error, StoreUnusable)
        assert f"the server has {setting} off" in str(error)
        assert "durability=fast" in str(error)


async def test_a_server_that_would_lose_messages_is_used_by_fast_and_the_doctor_tells(
    careless: tuple[Postgres, str],
) -> None:
    server, setting = careless
    with server.database() as url:
        async with await open_store(url, durability="fast") as store:
            assert store.capabilities.durability == "fast"
            await publish(store)
            found = {check.name: check for check in await store.examine()}
    assert not found["durability"].ok
    assert setting in found["durability"].text


async def test_a_full_server_is_said_to_be_and_used_when_it_has_room() -> None:
    settings = {"max_connections": "5", "superuser_reserved_connections": "0"}
    with Postgres(settings) as server:
        url = server.create_database()
        async with await open_store(url) as store, AsyncExitStack() as others:
            await store.close()
            await fill_up(others, url)
            error = await refusal(url)
            assert isinstance(error, StoreUnreachable)
            assert "accepts no connections now" in str(error)


async def fill_up(others: AsyncExitStack, url: str) -> None:
    while True:
        try:
            connection = await asyncpg.connect(url)
        except asyncpg.TooManyConnectionsError:
            return
        others.push_async_callback(connection.close)


async def test_a_store_that_finds_the_server_full_works_when_it_has_room() -> None:
    settings = {"max_connections": "8", "superuser_reserved_connections": "0"}
    with Postgres(settings) as server:
        url = server.create_database()
        async with await open_store(url, pool_size=8) as store:
            await publish(store)
            async with AsyncExitStack() as others:
                await fill_up(others, url)
                at_once = [publish(store) for _ in range(4)]
                told = await asyncio.gather(*at_once, return_exceptions=True)
                refused = [each for each in told if isinstance(each, BaseException)]
                assert {type(each) for each in refused} == {StoreUnreachable}
            done = 1 + len(told) - len(refused)
            await publish(store)
            assert await places(store) == {"message": done + 1, "ready": done + 1}


def test_options_are_put_behind_a_url() -> None:
    assert with_options("postgresql://host/name", pool_size=3) == (
        "postgresql://host/name?pool_size=3"
    )
