"""Verbs of the agents."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from penstock.model.message import FINAL, HistoryRow, Meta, Moment
from penstock.model.store_types import AgentRun, Exported, Firing, Promoted, Pruned, Retention
from penstock.stores.redis import publish
from penstock.stores.redis.codec import (
    decode_head,
    decode_moment,
    encode_id,
    encode_queue_id,
    make_field,
)
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.redis.export import RedisExport
from penstock.stores.sql.upkeep import AGENT_HOLD, AGENT_PREFIX, EXPORT_HOLD, MAX_LEVELS

# The limit in find_aging.lua, which keeps each script short.
LEVELS_PER_SCRIPT = 64
# Messages that a script of due schedules publishes.
TICKS_PER_SCRIPT = 200


class RedisUpkeep:
    def __init__(self, database: RedisDatabase, export: RedisExport) -> None:
        self.database = database
        self.export = export

    async def promote(self, limit: int) -> Promoted:
        count, now, next_at = await self.database.run("promote", limit)
        return Promoted(count, int(now), decode_moment(next_at))

    async def expire(self, limit: int) -> int:
        return int(await self.database.run("expire", limit))

    async def age(self, queue_id: int, waited: float, limit: int) -> int:
        queue, before = encode_queue_id(queue_id), publish.to_micros(waited)
        found: list[tuple[bytes, bytes, bytes]] = []
        place: bytes = b""
        for _ in range(MAX_LEVELS // LEVELS_PER_SCRIPT):
            place, *moves = await self.database.run("find_aging", queue, before, limit, place)
            found = sorted([*found, *zip(*[iter(moves)] * 3, strict=True)])[:limit]
            if not place:
                break
        return int(await self.database.run("age", queue, *chain(*found))) if found else 0

    async def sweep_keys(self, limit: int) -> int:
        return int(await self.database.run("sweep_keys", limit))

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Advances schedules and publishes their messages, as many as a short script can."""
        fired: list[bool] = []
        for some in split_firings(firings):
            words = [word for firing in some for word in encode_firing(firing)]
            fired += map(bool, await self.database.run("fire", *words))
        return fired

    async def dead_counts(self) -> dict[int, int]:
        depths = await self.export.depths(0)
        return {queue_id: count for (queue_id, place), count in depths.items() if place == "dead"}

    async def claim_tick(self, agent: str, every: float, by: str) -> bool:
        return bool(await self.database.run("claim_tick", agent, publish.to_micros(every), by))

    async def end_tick(self, agent: str, by: str, result: str) -> None:
        await self.database.run("end_tick", agent, by, result)

    async def agent_runs(self) -> list[AgentRun]:
        return sorted(
            (decode_agent_run(*pair) for pair in (await self.database.pairs("agent")).items()),
            key=decode_name,
        )

    async def prune(self, retention: Retention) -> Pruned:
        held = hold(await self.export.all_cursors(), await self.database.now())
        rows = await self.export.recent(retention.after, retention.limit)
        ids, pruned = find_prunable(rows, retention, held)
        if ids:
            await self.database.run("prune", *await self.traces(ids))
        return pruned

    async def traces(self, ids: Sequence[int]) -> list[bytes]:
        """Returns each message with its name and correlation id."""
        values = await self.database.ask("HMGET", "message", *map(encode_id, ids))
        return [
            word for id, value in zip(ids, values, strict=True) for word in list_traces(id, value)
        ]


def list_traces(id: int, value: bytes | None) -> tuple[bytes, bytes, bytes]:
    if value is None:
        return encode_id(id), b"", b""
    head = decode_head(value)
    name = b"" if head.meta.name is None else make_field(head.queue_id, head.meta.name)
    return encode_id(id), name, read_correlation(id, head.meta)


def read_correlation(id: int, meta: Meta) -> bytes:
    found = publish.encode_correlation(meta)
    return b"" if found is None else found + encode_id(id)


def hold(cursors: dict[str, Exported], now: Moment) -> tuple[int, int] | None:
    """Returns the message and row up to which all active exports have read."""
    active = [
        each.cursor
        for name, each in cursors.items()
        if each.advanced_at > now - (AGENT_HOLD if name.startswith(AGENT_PREFIX) else EXPORT_HOLD)
    ]
    if not active:
        return None
    return min(cursor.message for cursor in active), min(cursor.history for cursor in active)


def find_prunable(
    rows: Sequence[HistoryRow], retention: Retention, held: tuple[int, int] | None
) -> tuple[list[int], Pruned]:
    queues = frozenset(retention.queue_ids)
    ids: list[int] = []
    position = retention.after
    for row in rows:
        kept = held is not None and (row.id > held[0] or row.position > held[1])
        if kept or row.at > retention.before:
            return ids, Pruned(len(ids), position, False)
        if row.state in FINAL and row.queue_id in queues:
            if len(ids) == retention.max_messages:
                return ids, Pruned(len(ids), position, True)
            ids.append(row.id)
        position = row.position
    return ids, Pruned(len(ids), position, len(rows) >= retention.limit)


def decode_agent_run(name: bytes, text: bytes) -> AgentRun:
    at, length, rest = text.split(b" ", 2)
    by, result = rest[: int(length)], rest[int(length) + 1 :]
    return AgentRun(name.decode(), int(at), by.decode(), result.decode() if result else None)


def decode_name(run: AgentRun) -> str:
    return run.name


def split_firings(firings: Sequence[Firing]) -> Iterator[list[Firing]]:
    """Splits firings so that each part has few messages, or one schedule."""
    part: list[Firing] = []
    count = 0
    for firing in firings:
        if part and count + len(firing.entries) > TICKS_PER_SCRIPT:
            yield part
            part, count = [], 0
        part.append(firing)
        count += len(firing.entries)
    if part:
        yield part


def encode_firing(firing: Firing) -> list[Any]:
    groups = [publish.make_arguments([entry]) for entry in firing.entries]
    return [
        firing.schedule_id, firing.seen_at, firing.next_at, len(groups),
        *chain.from_iterable(groups),
    ]  # fmt: skip
