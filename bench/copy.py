"""Measures `penstock copy` from SQLite to PostgreSQL against publishing in batches.

Command line: python -m bench.copy. Both run in turn; half of the messages are completed.
"""

import argparse
import asyncio
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bench.figures import Figure, compare_values
from bench.postgres import Postgres
from bench.table import HEADER, Target, format_json_line, format_line
from bench.workload import make_bodies
from penstock import stores
from penstock.broker.copy_store import copy_store
from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.model.store_types import Completion

BATCH = 1_000
REPEATS = 3
TARGET = Target("ratio", ">=", 0.3)
HOME = Path(__file__).parents[1] / ".bench"


async def publish(url: str, count: int) -> None:
    async with await stores.open(url) as store:
        broker = Broker(store)
        for texts in make_batches(count):
            await broker.publish_many([Draft(body=text.encode()) for text in texts])


async def complete_half(url: str, count: int) -> None:
    async with await stores.open(url) as store:
        broker = Broker(store)
        for _ in range(count // 2 // BATCH):
            claimed = await broker.claim("default", limit=BATCH, consumer="bench")
            await broker.complete_many(
                [Completion(each.id, each.fence) for each in claimed.messages]
            )


def make_batches(count: int) -> list[list[str]]:
    return [make_bodies(BATCH)] * (count // BATCH)


async def copy(source: str, target: str) -> None:
    async with await stores.open(source) as old, await stores.open(target) as new:
        await copy_store(old, new)


def measure_rate(count: int, work: Coroutine[Any, Any, None]) -> float:
    began = perf_counter()
    asyncio.run(work)
    return count / (perf_counter() - began)


def measure(directory: Path, count: int) -> Figure:
    # Its server runs as another user, which cannot read a private directory.
    subject = Postgres(HOME)
    source = f"sqlite:///{directory}/source.db"
    asyncio.run(publish(source, count))
    asyncio.run(complete_half(source, count))
    references, values = [], []
    for _ in range(REPEATS):
        with subject.fresh() as url:
            references.append(measure_rate(count, publish(url, count)))
        with subject.fresh() as url:
            values.append(measure_rate(count, copy(source, url)))
    return compare_values("copy", "msg/s", references, values)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench copy", description="Benchmark penstock copy.")
    parser.add_argument("--messages", type=int, default=1_000_000, help="default: 1000000")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    given = parser.parse_args()
    HOME.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=HOME) as directory:
        figure = measure(Path(directory), given.messages)
    if given.json:
        print(format_json_line("copy", figure))
    else:
        print(HEADER)
        print(format_line(figure, TARGET))


if __name__ == "__main__":
    main()
