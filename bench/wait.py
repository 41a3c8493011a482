"""Measures waits: plain drain, the overhead of steps, many steps, many sleepers, fan-in.

Command line: python -m bench.wait [URL] [--count N]. Without a URL it uses a SQLite file.
"""

import argparse
import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from penstock import Context, Penstock, stores
from penstock.broker.local import Broker
from penstock.model.message import After, Draft, Flag
from penstock.model.store_types import Completion, Entry
from penstock.model.waiting import Hold, Wait

BATCH = 500


async def drain(broker: Broker, count: int) -> float:
    """Publishes and completes plain messages; returns how many a second."""
    began = perf_counter()
    for _ in range(count // BATCH):
        await broker.publish_many([Draft(body=b"1")] * BATCH)
    while taken := (await broker.claim("default", limit=BATCH, consumer="bench")).messages:
        await broker.complete_many([Completion(each.id, each.fence) for each in taken])
    return count / (perf_counter() - began)


async def run_steps(url: str, steps: int) -> float:
    """Runs one task with many steps; returns seconds for each step."""
    app = Penstock(url)

    async def nothing() -> None: ...

    @app.task(queue="steps")
    async def many(context: Context) -> float:
        began = perf_counter()
        for _ in range(steps):
            await context.step("nothing", nothing)
        return (perf_counter() - began) / steps

    async with await app.worker():
        job = await many.aenqueue()
        return await job.aresult()


async def resume_sleepers(broker: Broker, count: int) -> float:
    """Lets messages sleep until now; returns how many are resumed a second."""
    for _ in range(count // BATCH):
        await broker.publish_many([Draft(body=b"1")] * BATCH)
    while taken := (await broker.claim("default", limit=BATCH, consumer="bench")).messages:
        for each in taken:
            hold = Hold(kind="moment", delay=0.0)
            await broker.store.wait(
                Wait(
                    id=each.id, fence=each.fence, seen_flags=each.flags, attempts=0, deliveries=0,
                    reason="sleep", holds=(hold,),
                )
            )  # fmt: skip
    began = perf_counter()
    resumed = 0
    while resumed < count:
        resumed += (await broker.store.look()).resumed
    seconds = perf_counter() - began
    while taken := (await broker.claim("default", limit=BATCH, consumer="bench")).messages:
        await broker.complete_many([Completion(each.id, each.fence) for each in taken])
    return count / seconds


async def fan_in(broker: Broker, count: int) -> float:
    """Completes messages that one waits for; returns how many a second, with its resume."""
    queue = await broker.get_queue("default")
    plain = Entry(queue.id, "message", b"1")
    after = After(entries=tuple(range(count)))
    last = Entry(queue.id, "message", b"1", flags=Flag.HELD, after=after)
    began = perf_counter()
    await broker.store.enqueue([*[plain] * count, last], atomic=True)
    done = 0
    while done <= count:
        taken = (await broker.claim("default", limit=BATCH, consumer="bench")).messages
        await broker.complete_many([Completion(each.id, each.fence) for each in taken])
        done += len(taken)
        await broker.store.look()
    return count / (perf_counter() - began)


async def measure(url: str, count: int) -> None:
    async with Broker(await stores.open(url)) as broker:
        print(f"plain drain        {await drain(broker, count):10.0f} messages/s")
        print(f"fan-in             {await fan_in(broker, count):10.0f} messages/s")
        print(f"resume sleepers    {await resume_sleepers(broker, count):10.0f} messages/s")
    for steps in (1_000, count):
        print(f"{steps:6} steps       {1e6 * await run_steps(url, steps):10.0f} us each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--count", type=int, default=10_000)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{Path(folder) / 'bench.db'}"
        asyncio.run(measure(url, given.count))


if __name__ == "__main__":
    main()
