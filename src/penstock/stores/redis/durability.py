"""Whether the server keeps what it confirms."""

from typing import NamedTuple

from redis.exceptions import ResponseError

from penstock.errors import StoreUnusable
from penstock.stores.redis.connection import RedisConnection

SAFE = "what was accepted survives a power cut"
NEEDED = {
    "appendonly": ("yes", "it has no log (appendonly no)"),
    "appendfsync": ("always", "its log is written later (appendfsync is not always)"),
}


class RedisDurability(NamedTuple):
    """`unknown`: the server does not tell its settings."""

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
    return [f"it throws messages away when it is full (maxmemory-policy {policy})"]


def refuse_unsafe(safety: RedisDurability) -> None:
    if safety.unknown:
        raise StoreUnusable(
            "the server does not tell its settings; if you know that it has appendonly yes,"
            " appendfsync always and no eviction, say durability=trusted"
        )
    if safety.lacks:
        raise StoreUnusable(
            f"{' and '.join(safety.lacks)}, and would lose messages;"
            " change its settings, or say durability=fast"
        )
