"""Checks whether the server's settings keep acknowledged writes."""

from typing import NamedTuple

from redis.exceptions import ResponseError

from penstock.errors import StoreUnusable
from penstock.stores.redis.connection import RedisConnection

SAFE = "accepted messages survive a power cut"
NEEDED = {
    "appendonly": ("yes", "the append-only file is off (appendonly no)"),
    "appendfsync": ("always", "writes are not synced (appendfsync is not always)"),
}


class RedisDurability(NamedTuple):
    """Missing settings. `unknown`: the server does not report its settings."""

    lacks: tuple[str, ...] = ()
    unknown: bool = False


async def read_durability(session: RedisConnection) -> RedisDurability:
    try:
        flat = await session.ask("CONFIG", "GET", "*")
    except ResponseError:
        return RedisDurability(unknown=True)
    settings = {
        name.decode(): value.decode("utf-8", "replace")
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    }
    if not NEEDED.keys() <= settings.keys():
        return RedisDurability(unknown=True)
    lacks = [text for name, (wanted, text) in NEEDED.items() if settings[name] != wanted]
    return RedisDurability(tuple(lacks + find_eviction_policy(settings)))


def find_eviction_policy(settings: dict[str, str]) -> list[str]:
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy == "noeviction" or settings.get("maxmemory", "0") == "0":
        return []
    return [f"keys are evicted when memory is full (maxmemory-policy {policy})"]


def refuse_unsafe(safety: RedisDurability) -> None:
    if safety.unknown:
        raise StoreUnusable(
            "the server does not report its settings; if it has appendonly yes,"
            " appendfsync always and no eviction, set durability=trusted in the URL"
        )
    if safety.lacks:
        raise StoreUnusable(
            f"messages could be lost: {' and '.join(safety.lacks)};"
            " change the server's settings or set durability=fast in the URL"
        )
