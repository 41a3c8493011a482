"""A server that cannot be used is said to be, in our words, with what to do about it."""

import pytest

from penstock import stores
from penstock.errors import (
    InvalidInput,
    StoreError,
    StoreTooNew,
    StoreUnreachable,
    StoreUnusable,
)
from penstock.model.store_types import Completion
from penstock.stores.redis.store import RedisStore
from tests.redis.scenes import claim, open_store, places, publish
from tests.servers.places import free_port
from tests.servers.redis import Redis

pytestmark = pytest.mark.anyio


async def refusal(url: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await stores.open(url)
    return caught.value


async def test_a_server_that_is_not_there_can_be_tried_again() -> None:
    error = await refusal(f"redis://127.0.0.1:{free_port()}/0")
    assert isinstance(error, StoreUnreachable)
    assert "cannot be reached" in str(error)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("?durability=sometimes", "durability must be safe, fast or trusted"),
        ("?pool_size=1", "pool_size must be a number from 2 to 1000"),
        ("?prefix={x}", "prefix must be up to 100 letters"),
        ("?speed=high", "speed"),
    ],
)
async def test_an_option_that_makes_no_sense_is_named(url: str, end: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        await stores.open(url + end)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"appendonly": "no"}, "appendonly no"),
        ({"appendfsync": "everysec"}, "appendfsync is not always"),
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, "maxmemory-policy allkeys-lru"),
    ],
)
async def test_a_server_that_would_lose_messages_is_for_fast_only_and_the_doctor_tells(
    settings: dict[str, str], told: str
) -> None:
    with Redis(settings) as server:
        error = await refusal(server.url())
        assert isinstance(error, StoreUnusable)
        assert told in str(error)
        assert "durability=fast" in str(error)
        async with await stores.open(f"{server.url()}?durability=fast") as store:
            assert store.capabilities.durability == "fast"
            found = {check.name: check for check in await store.examine()}
    assert not found["durability"].ok


async def test_a_server_that_keeps_its_settings_to_itself_has_to_be_trusted(
    redis_server: Redis, url: str
) -> None:
    with redis_server.connect() as outside:
        outside.acl_setuser(
            "quiet", enabled=True, nopass=True, keys="*", channels="*",
            commands=["+@all", "-config"], reset=True,
        )  # fmt: skip
    quiet = url.replace("redis://", "redis://quiet:any@")
    error = await refusal(quiet)
    assert isinstance(error, StoreUnusable)
    assert "durability=trusted" in str(error)
    async with await open_store(f"{quiet}?durability=trusted") as store:
        assert store.capabilities.durability == "trusted"
        await publish(store)
        assert len(await claim(store)) == 1


async def test_the_rights_that_are_documented_are_enough(redis_server: Redis, url: str) -> None:
    """See docs/how-to/redis.md."""
    with redis_server.connect() as outside:
        outside.execute_command(
            "ACL SETUSER", "penstock", "on", ">secret", "~{penstock}:*", "&{penstock}:*", "+@all",
            "-@dangerous", "+info", "+config|get",
        )  # fmt: skip
    async with await open_store(url.replace("redis://", "redis://penstock:secret@")) as store:
        store.notifier.listen()
        await publish(store)
        (held,) = await claim(store)
        answers = await store.complete([Completion(held.id, held.fence)])
        assert [answer.kind for answer in answers] == ["done"]
        assert [check.name for check in await store.examine() if not check.ok] == []


async def test_a_wrong_password_is_said_and_not_repeated() -> None:
    with Redis({"requirepass": "secret"}) as server:
        error = await refusal(server.url().replace("redis://", "redis://:guess@"))
        assert isinstance(error, StoreUnusable)
        assert "guess" not in str(error)
        async with await open_store(server.url().replace("redis://", "redis://:secret@")) as store:
            assert "secret" not in store.database.where


async def test_a_replica_is_refused(redis_server: Redis) -> None:
    with Redis({"replicaof": f"127.0.0.1 {redis_server.port}"}) as server:
        error = await refusal(server.url())
    assert isinstance(error, StoreUnusable)
    assert "read-only replica" in str(error)


async def test_a_store_of_a_newer_penstock_is_left_alone(store: RedisStore, url: str) -> None:
    await store.database.ask("HSET", "fact", "schema", 99)
    error = await refusal(url)
    assert isinstance(error, StoreTooNew)
    assert "schema 99" in str(error)


async def test_a_foreign_value_under_our_names_is_told(redis_server: Redis, url: str) -> None:
    with redis_server.connect() as outside:
        outside.set("{penstock}:fact", "mine")
    error = await refusal(url)
    assert isinstance(error, StoreUnusable)
    assert "under this store's prefix" in str(error)


async def test_stores_with_other_prefixes_share_a_server(store: RedisStore, url: str) -> None:
    async with await open_store(f"{url}?prefix=other") as other:
        await publish(other, 3)
        assert await places(other) == {"message": 3, "ready": 3}
        assert await places(store) == {}


async def test_a_server_with_nothing_wrong_is_well(store: RedisStore) -> None:
    assert [check.name for check in await store.examine() if not check.ok] == []


async def test_there_is_no_transaction_to_take_part_in(store: RedisStore) -> None:
    with pytest.raises(InvalidInput, match="cannot join your transaction"):
        store.enqueue_on(object(), [])
