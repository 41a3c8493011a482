"""Measures searches, explain and bulk actions against the bare verbs of the store."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from time import monotonic

from bench.figures import Figure, compare_values, summarise
from bench.processes import SideProcess
from bench.table import Target
from penstock import stores
from penstock.agents.bulk_runner import BulkRunner
from penstock.broker.local import Broker
from penstock.broker.search import MAX_SCANNED
from penstock.model.bulk import BulkState
from penstock.model.message import Draft, SettleReject
from penstock.model.search import Scan, Source
from penstock.store import Store

MESSAGES = 1_000_000
DEAD = 100_000
PAGE = 50
REPEATS = 20
BATCH = 100
FILL_BATCH = 1_000
# How often each way to redrive has its turn, and how long others are timed alone before.
TURNS = 3
ALONE_S = 3.0
ASK_INTERVAL_S = 0.5


async def time_calls(call: Callable[[], Awaitable[object]], repeats: int = REPEATS) -> list[float]:
    """Returns the milliseconds of each call."""
    times = []
    for _ in range(repeats):
        began = monotonic()
        await call()
        times.append((monotonic() - began) * 1_000)
    return times


async def fill(broker: Broker, count: int) -> None:
    await broker.admin.create_queue("line")
    for first in range(0, count, FILL_BATCH):
        drafts = [
            Draft(queue="line", type="mail", body=b'{"n": %d}' % number)
            for number in range(first, min(first + FILL_BATCH, count))
        ]
        await broker.publish_many(drafts)


async def bury(broker: Broker, count: int) -> None:
    """Adds dead letters."""
    for _ in range(0, count, FILL_BATCH):
        await broker.publish_many([Draft(body=b'{"to": "ada"}')] * FILL_BATCH)
        taken = (await broker.claim("default", limit=FILL_BATCH, consumer="bench")).messages
        await broker.settle_many([(each, SettleReject("no")) for each in taken])


async def measure_pages(store: Store, broker: Broker) -> list[tuple[Figure, Target]]:
    queue = await broker.admin.queue("line")

    async def read_bare() -> None:
        page = await store.scan(Scan(Source.READY, (queue.id,), limit=PAGE))
        await store.get_many([head.id for head in page.heads])

    async def read_filtered() -> None:
        await broker.admin.search("state:ready queue:line type:mail", limit=PAGE)

    scanned = (await broker.admin.search("body.n:-1", limit=PAGE)).scanned

    async def read_unindexed() -> None:
        await broker.admin.search("body.n:-1", limit=PAGE)

    # In turn, so that what else the machine does weighs on both.
    pairs = [
        (*await time_calls(read_bare, 1), *await time_calls(read_filtered, 1))
        for _ in range(REPEATS)
    ]
    paged = compare_values(
        "filter page", "ms", [bare for bare, _ in pairs], [seen for _, seen in pairs]
    )
    missed = summarise("unindexed page", "ms", await time_calls(read_unindexed, 5))
    return [
        (paged, Target("ratio", "<=", 3)),
        (missed, Target("value", "<=", 1_000)),
        (Figure("rows looked at", scanned, "rows"), Target("value", "<=", MAX_SCANNED)),
    ]


async def measure_explain(broker: Broker) -> list[tuple[Figure, Target]]:
    found = await broker.admin.find("line", limit=1)
    times = await time_calls(lambda: broker.admin.explain(found[0].message.id))
    return [(summarise("explain", "ms", times), Target("value", "<=", 20))]


async def redrive_bare(store: Store, broker: Broker) -> float:
    """Returns the dead letters redriven a second, by the bare verb in batches."""
    queue = await broker.admin.queue("default")
    began, done = monotonic(), 0
    while True:
        page = await store.scan(Scan(Source.DEAD, (queue.id,), limit=BATCH))
        if not page.heads:
            return done / (monotonic() - began)
        await store.redrive([head.id for head in page.heads])
        done += len(page.heads)


async def redrive_bulk(store: Store, broker: Broker) -> float:
    """Returns the dead letters redriven a second, by a bulk action."""
    action = await broker.bulk.start("redrive", filter="state:dead queue:default")
    runner = BulkRunner(store, broker.directory, "bench")
    asked_at = monotonic()
    while action.state is BulkState.RUNNING:
        await asyncio.sleep(await runner.tick())
        # Now and then, as an operator does.
        if monotonic() >= asked_at + ASK_INTERVAL_S:
            asked_at = monotonic()
            action = await broker.bulk.get(action.id)
    ended = (action.ended_at or 0) - action.created_at
    return action.counts.done / (ended / 1_000_000)


REDRIVES = {"bare": redrive_bare, "bulk": redrive_bulk}


async def redrive_aside(url: str, way: str) -> float:
    """Redrives in a process of its own."""
    async with await stores.open(url) as store:
        broker = Broker(store)
        await broker.directory.refresh()
        print("ready", flush=True)
        return await REDRIVES[way](store, broker)


async def clear(broker: Broker) -> None:
    while await broker.admin.purge("default", "ready", limit=10_000):
        pass


async def time_others(url: str, goes_on: Callable[[], bool]) -> list[float]:
    """Returns the milliseconds that publish and claim by another client took, each time."""
    async with await stores.open(url) as store:
        broker = Broker(store)
        await broker.admin.ensure_queue("others")
        times: list[float] = []
        while goes_on() or not times:
            start = monotonic()
            await broker.publish(Draft(queue="others"))
            await broker.claim("others", consumer="bench")
            times.append((monotonic() - start) * 1_000)
            await asyncio.sleep(0.005)
    return times


async def redrive_beside(
    url: str, broker: Broker, way: str, dead: int
) -> tuple[float, list[float]]:
    """Returns the rate of a redrive beside another client, and what that client waited."""
    await clear(broker)
    await bury(broker, dead)
    process = SideProcess("bench.operate", url, "--redrive", way)
    times = await time_others(url, process.is_running)
    return process.end(), times


async def measure_redrive(url: str, broker: Broker, dead: int) -> list[tuple[Figure, Target]]:
    """Redrives by turns, so that what else the machine does weighs on all of them."""
    rates: dict[str, list[float]] = {way: [] for way in REDRIVES}
    waited: dict[str, list[float]] = {way: [] for way in ("none", *REDRIVES)}
    for _ in range(TURNS):
        until = monotonic() + ALONE_S
        waited["none"] += await time_others(url, lambda until=until: monotonic() < until)
        for way in REDRIVES:
            rate, times = await redrive_beside(url, broker, way, dead)
            rates[way].append(rate)
            waited[way] += times
    alone, beside_bare, beside = (find_p99(waited[way]) for way in ("none", "bare", "bulk"))
    print(f"# p99 of others beside the bare verb: {beside_bare:.2f} ms", file=sys.stderr)
    return [
        (
            compare_values("bulk redrive", "msg/s", rates["bare"], rates["bulk"]),
            Target("ratio", ">=", 0.5),
        ),
        (compare_values("p99 of others", "ms", [alone], [beside]), Target("ratio", "<=", 1.5)),
    ]


def find_p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


async def measure_bulk(url: str, messages: int, dead: int) -> list[tuple[Figure, Target]]:
    async with await stores.open(url) as store:
        broker = Broker(store)
        await fill(broker, messages)
        found = await measure_pages(store, broker)
        found += await measure_explain(broker)
        return found + await measure_redrive(url, broker, dead)
