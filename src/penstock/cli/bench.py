"""Measures the throughput of SQLite for `penstock bench`."""

import asyncio
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.model.store_types import Completion

BODY = b'{"pad":"' + b"x" * 190 + b'"}'
BATCH_SIZE = 500


def measure(messages: int) -> dict[str, int]:
    """Return operations per second, by operation."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(f"sqlite:///{Path(folder) / 'bench.db'}", messages))


async def run(url: str, messages: int) -> dict[str, int]:
    async with await stores.open(url) as store:
        broker = Broker(store)
        singles = max(1, messages // 100)
        return {
            "publish one at a time": await measure_rate(singles, publish_one(broker, singles)),
            "publish in batches": await measure_rate(messages, publish_batches(broker, messages)),
            "claim and complete": await measure_rate(messages + singles, drain(broker)),
        }


async def measure_rate(count: int, work: Coroutine[Any, Any, None]) -> int:
    started = time.perf_counter()
    await work
    return round(count / (time.perf_counter() - started))


async def publish_one(broker: Broker, count: int) -> None:
    for _ in range(count):
        await broker.publish(Draft(body=BODY))


async def publish_batches(broker: Broker, count: int) -> None:
    for start in range(0, count, BATCH_SIZE):
        await broker.publish_many([Draft(body=BODY)] * min(BATCH_SIZE, count - start))


async def drain(broker: Broker) -> None:
    while True:
        taken = await broker.claim("default", consumer="bench", limit=BATCH_SIZE)
        if not taken.messages:
            return
        await broker.complete_many([Completion(each.id, each.fence) for each in taken.messages])
