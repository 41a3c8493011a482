"""Health checks of a Redis store, and whether the server's settings keep acknowledged writes."""

from typing import NamedTuple

from redis.exceptions import ResponseError

from penstock.errors import StoreUnusable
from penstock.model.message import Moment
from penstock.store import Check
from penstock.stores.redis.connection import SCHEMA, RedisConnection, read_reply
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.redis.export import RedisExport
from penstock.stores.redis.queues import RedisQueues
from penstock.stores.redis.upkeep import RedisUpkeep
from penstock.stores.sql.upkeep import OVERDUE_MICROS, STALE_EXPORT_MICROS
from penstock.stores.sql.waiting import judge_waits

SAFE = "accepted messages survive a power failure"
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


# Fraction of maxmemory.
NEARLY_FULL = 0.9
# Waiting messages that one script looks at, and about how many that they wait for.
WAITS_BATCH, EDGES_BATCH = 200, 2_000


class RedisHealth:
    def __init__(
        self, database: RedisDatabase, queues: RedisQueues, export: RedisExport, upkeep: RedisUpkeep
    ) -> None:
        self.database = database
        self.queues = queues
        self.export = export
        self.upkeep = upkeep

    async def examine(self) -> list[Check]:
        now = await self.database.now()
        info = read_reply(await self.database.call(lambda session: session.ask("INFO")))
        return [
            check_durability(
                await self.database.call(read_durability), self.database.address.durability
            ),
            Check("server", f"version {info.get('redis_version', 'unknown')}"),
            await self.schema(),
            check_memory(info),
            await self.type_index(),
            await self.overdue_leases(now),
            await self.waits(),
            await self.stale_exports(now),
            Check("dead letters", f"{sum((await self.upkeep.dead_counts()).values())}"),
        ]

    async def schema(self) -> Check:
        there = int(await self.database.ask("HGET", "fact", "schema"))
        return Check("schema", f"schema {there}, this version supports {SCHEMA}")

    async def type_index(self) -> Check:
        there = await self.database.ask("HGET", "fact", "typed") is not None
        if await self.lacks_type_index():
            return Check(
                "type index", "missing: claims by type are slow; run penstock migrate", False
            )
        return Check("type index", "present" if there else "not needed")

    async def lacks_type_index(self) -> bool:
        wanted = any(queue.settings.filter_by_type for queue in await self.queues.queues())
        return wanted and await self.database.ask("HGET", "fact", "typed") is None

    async def overdue_leases(self, now: Moment) -> Check:
        """Overdue leases mean that no reclaimer runs: one reclaims within seconds."""
        overdue = await self.database.ask(
            "ZCOUNT", "lease_until", "-inf", f"({now - OVERDUE_MICROS}"
        )
        if overdue:
            text = f"{overdue} expired over a minute ago; is a worker running?"
            return Check("leases", text, False)
        return Check("leases", "none overdue")

    async def waits(self) -> Check:
        ids = await self.list_keys("HSCAN", "hold") | await self.list_keys("ZSCAN", "held_until")
        counts = [0, 0, 0, 0]
        ordered, looked = sorted(ids), 0
        while looked < len(ordered):
            part = ordered[looked : looked + WAITS_BATCH]
            *found, count = await self.database.run("torn_waits", EDGES_BATCH, *part)
            counts = [sum(pair) for pair in zip(counts, found, strict=True)]
            looked += count
        return judge_waits(*counts)

    async def list_keys(self, command: str, key: str) -> set[bytes]:
        """Returns the fields of a hash, or the members of a sorted set."""
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            cursor, flat = await self.database.ask(command, key, cursor, "COUNT", WAITS_BATCH)
            found.update(flat[::2])
            if cursor == b"0":
                return found

    async def stale_exports(self, now: Moment) -> Check:
        stale = [
            name for name, each in (await self.export.cursors()).items()
            if each.advanced_at < now - STALE_EXPORT_MICROS
        ]  # fmt: skip
        if stale:
            return Check("exports", f"no progress for a day: {', '.join(stale)}", False)
        return Check("exports", "none behind")


def check_durability(safety: RedisDurability, durability: str) -> Check:
    if safety.unknown:
        return Check("durability", f"{durability}: the server does not report its settings")
    if safety.lacks:
        return Check("durability", f"{durability}: {', '.join(safety.lacks)}", False)
    return Check("durability", f"safe: {SAFE}")


def check_memory(memory: dict[str, str]) -> Check:
    used, most = int(memory.get("used_memory", 0)), int(memory.get("maxmemory", 0))
    if not most:
        return Check("memory", f"{used:,} bytes used, no limit set")
    return Check("memory", f"{used:,} of {most:,} bytes used", used < NEARLY_FULL * most)
