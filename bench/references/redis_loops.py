"""The hand-written loops on Redis: a sorted set, a hash, leases in another set; no history."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

from redis import asyncio as redis

from bench.processes import Start
from bench.verbs import run
from bench.workload import BULK, WARM_UP, make_bodies, make_body

BATCH = 100
CHANNEL = "q"
# A lost notification must not stop the loop.
POLL = 1.0

Client: TypeAlias = "redis.Redis"
Rows: TypeAlias = Sequence[tuple[bytes, bytes]]

FILL = """
for place = 1, #ARGV do
    local id = redis.call('INCR', KEYS[1])
    redis.call('ZADD', KEYS[2], id, id)
    redis.call('HSET', KEYS[3], id, ARGV[place])
end
redis.call('PUBLISH', 'q', '')
"""
CLAIM = """
local ids = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)
if #ids == 0 then return {{}, {}} end
redis.call('ZREM', KEYS[1], unpack(ids))
local leases = {}
for _, id in ipairs(ids) do
    leases[#leases + 1] = ARGV[2]
    leases[#leases + 1] = id
end
redis.call('ZADD', KEYS[2], unpack(leases))
return {ids, redis.call('HMGET', KEYS[3], unpack(ids))}
"""
DELETE = """
redis.call('ZREM', KEYS[1], unpack(ARGV))
return redis.call('HDEL', KEYS[2], unpack(ARGV))
"""


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[Client]:
    client = redis.Redis.from_url(url, single_connection_client=True)
    try:
        yield client
    finally:
        await client.aclose()


def publish_one(start: Start, url: str, seconds: float) -> float:
    """Returns pushes per second, one per call."""
    return run(_publish_one(start, url, seconds))


async def _publish_one(start: Start, url: str, seconds: float) -> float:
    async with open_connection(url) as client:
        texts = make_bodies(BULK)
        for text in texts[:WARM_UP]:
            await client.lpush("list", text)
        start()
        began = time.monotonic()
        count = 0
        while (elapsed := time.monotonic() - began) < seconds:
            await client.lpush("list", texts[count % BULK])
            count += 1
        return count / elapsed


def bulk(start: Start, url: str, count: int) -> float:
    """Returns pushes per second, 1000 per pipeline."""
    return run(_bulk(start, url, count))


async def _bulk(start: Start, url: str, count: int) -> float:
    async with open_connection(url) as client:
        texts = make_bodies(BULK)
        await push_all(client, texts)
        start()
        began = time.monotonic()
        for _ in range(count // BULK):
            await push_all(client, texts)
        return count / (time.monotonic() - began)


async def push_all(client: Client, texts: Sequence[str]) -> None:
    async with client.pipeline(transaction=False) as pipeline:
        for text in texts:
            pipeline.lpush("list", text)
        await pipeline.execute()


def fill(start: Start, url: str, count: int) -> None:
    run(_fill(start, url, count))


async def _fill(start: Start, url: str, count: int) -> None:
    async with open_connection(url) as client:
        put, texts = client.register_script(FILL), make_bodies(BULK)
        start()
        for done in range(0, count, BULK):
            await put(keys=["seq", "ready", "body"], args=texts[: count - done])


def drain(start: Start, url: str, count: int) -> float:
    """Returns messages per second, claimed and deleted 100 at a time."""
    return run(_drain(start, url, count))


async def _drain(start: Start, url: str, count: int) -> float:
    async with open_connection(url) as client:
        loop = Loop(client)
        for _ in range(WARM_UP // BATCH):
            await loop.turn()
        start()
        began = time.monotonic()
        done = 0
        while done < count:
            done += await loop.turn()
        return done / (time.monotonic() - began)


class Loop:
    """Claims and deletes, without a fence."""

    def __init__(self, client: Client) -> None:
        self.claim_script: Any = client.register_script(CLAIM)
        self.delete_script: Any = client.register_script(DELETE)

    async def turn(self) -> int:
        rows = await self.claim()
        for _, payload in rows:
            json.loads(payload)
        await self.delete(rows)
        return len(rows)

    async def claim(self) -> Rows:
        ids, payloads = await self.claim_script(
            keys=["ready", "lease", "body"], args=[BATCH, time.time() + 30]
        )
        return list(zip(ids, payloads, strict=True))

    async def delete(self, rows: Rows) -> None:
        if rows:
            await self.delete_script(keys=["lease", "body"], args=[id for id, _ in rows])


def send(start: Start, url: str, count: int, pause: float) -> list[float]:
    """Publishes bodies that contain their send time."""
    return run(_send(start, url, count, pause))


async def _send(start: Start, url: str, count: int, pause: float) -> list[float]:
    async with open_connection(url) as client:
        put = client.register_script(FILL)
        await asyncio.to_thread(start)
        for number in range(count):
            await asyncio.sleep(pause)
            sent = make_body(number, time.monotonic())
            await put(keys=["seq", "ready", "body"], args=[sent])
    return []


def receive(start: Start, url: str, count: int) -> list[float]:
    """Returns the seconds from each publish to its claim in this process."""
    return run(_receive(start, url, count))


async def _receive(start: Start, url: str, count: int) -> list[float]:
    waits: list[float] = []
    other = redis.Redis.from_url(url)
    async with open_connection(url) as client, other, other.pubsub() as listener:
        await listener.subscribe(CHANNEL)
        loop = Loop(client)
        await asyncio.to_thread(start)
        while len(waits) < count:
            rows = await loop.claim()
            now = time.monotonic()
            waits += [now - json.loads(payload)["sent_at"] for _, payload in rows]
            await loop.delete(rows)
            if not rows:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL):
                        await listener.get_message(timeout=None)
    return waits
