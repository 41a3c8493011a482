"""Opens a Redis store by its URL."""

import secrets

from redis.exceptions import MovedError

from penstock.errors import StoreTooNew, StoreUnusable
from penstock.store import Clock
from penstock.stores.redis.connect import RedisConnector, read_reply
from penstock.stores.redis.dsn import SCHEMA, RedisDsn, parse
from penstock.stores.redis.durability import read_durability, refuse_unsafe
from penstock.stores.redis.errors import ERRORS, translate_error
from penstock.stores.redis.store import RedisStore

OLDEST = (6, 2)


async def open_store(url: str, *, clock: Clock | None = None) -> RedisStore:
    address = parse(url)
    await refuse_unfit(address)
    store = RedisStore(address, clock)
    try:
        schema, _ = await store.run("found", SCHEMA, secrets.token_hex(32))
        refuse_newer(int(schema), address.where)
        await store.found_default()
    except BaseException:
        await store.close()
        raise
    return store


async def exists(url: str) -> bool:
    address = parse(url)
    connector = RedisConnector(address)
    while True:
        session = await connector.plain_session()
        try:
            return bool(await session.ask("HEXISTS", address.key("fact"), "secret"))
        except MovedError as error:
            connector.move(error)
        except ERRORS as error:
            raise translate_error(error, address.where) from error
        finally:
            session.terminate()


def refuse_newer(schema: int, where: str) -> None:
    if schema > SCHEMA:
        raise StoreTooNew(f"{where}: schema {schema} is newer than {SCHEMA}; upgrade penstock")


async def refuse_unfit(address: RedisDsn) -> None:
    session = await RedisConnector(address).plain_session()
    try:
        info = read_reply(await session.ask("INFO"))
        refuse_server(info)
        if address.durability == "safe":
            refuse_unsafe(await read_durability(session))
    except ERRORS as error:
        raise translate_error(error, address.where) from error
    except StoreUnusable as error:
        raise type(error)(f"{address.where}: {error}") from None
    finally:
        session.terminate()


def refuse_server(info: dict[str, str]) -> None:
    version = info.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise StoreUnusable(f"Redis {version} is too old; 6.2 or newer is needed")
    if info.get("role") == "slave":
        raise StoreUnusable("it is a read-only replica; use the primary")
