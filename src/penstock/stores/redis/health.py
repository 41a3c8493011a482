"""Health checks of a Redis store."""

from penstock.model.message import Moment
from penstock.store import Check
from penstock.stores.redis.connection import SCHEMA, read_reply
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.redis.durability import SAFE, RedisDurability, read_durability
from penstock.stores.redis.export import RedisExport
from penstock.stores.redis.queues import RedisQueues
from penstock.stores.redis.upkeep import RedisUpkeep
from penstock.stores.sql.health import OVERDUE, STALE_EXPORT

# Fraction of maxmemory.
NEARLY_FULL = 0.9


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
        overdue = await self.database.ask("ZCOUNT", "lease_until", "-inf", f"({now - OVERDUE}")
        if overdue:
            text = f"{overdue} expired over a minute ago; is a worker running?"
            return Check("leases", text, False)
        return Check("leases", "none overdue")

    async def stale_exports(self, now: Moment) -> Check:
        stale = [
            name for name, each in (await self.export.cursors()).items()
            if each.advanced_at < now - STALE_EXPORT
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
