"""Measures waits on SQLite and PostgreSQL, each against the same work without them.

Command line: python -m bench.wait [sqlite|postgres ...] [--count N] [--sleepers N].
"""

import argparse
import asyncio
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from penstock import Context, Penstock, stores
from penstock.agents.scheduler import Scheduler
from penstock.broker.local import Broker
from penstock.model.message import After, Draft, Flag
from penstock.model.store_types import Completion, Entry
from penstock.model.waiting import Hold, Wait
from tests.servers import postgres

BATCH = 500
SAMPLES = 100
COMPARED = 500
WAVES = 20
WAVE = 10
NAP_S = 0.05
# Both latencies begin at rest: what the run before left to do has been done.
REST_S = 0.02
IDLE_TICKS = 50


def judge(name: str, value: float, limit: float, unit: str = "", *, least: bool = False) -> None:
    met = value >= limit if least else value <= limit
    wanted = f"{'at least' if least else 'at most'} {limit:g}{unit}"
    print(f"  {name:<44}{value:10.2f}{unit}  {wanted:<20}{'met' if met else 'MISSED'}")


async def complete_all(broker: Broker, each_time: Callable[[], object] | None = None) -> int:
    done = 0
    while taken := (await broker.claim("default", limit=BATCH, consumer="bench")).messages:
        await broker.complete_many([Completion(each.id, each.fence) for each in taken])
        done += len(taken)
        if each_time is not None:
            await broker.store.resume_held()
    return done


async def drain(broker: Broker, count: int) -> float:
    """Publishes plain messages in one step and completes them; returns the seconds."""
    queue = await broker.get_queue("default")
    began = perf_counter()
    await broker.store.enqueue([Entry(queue.id, "message", b"1")] * count, atomic=True)
    await complete_all(broker)
    return perf_counter() - began


async def measure_fan_in(broker: Broker, count: int) -> float:
    """Does the same with one more message that waits for all; returns the seconds."""
    queue = await broker.get_queue("default")
    plain = Entry(queue.id, "message", b"1")
    after = After(entries=tuple(range(count)))
    last = Entry(queue.id, "message", b"1", flags=Flag.HELD, after=after)
    began = perf_counter()
    await broker.store.enqueue([*[plain] * count, last], atomic=True)
    done = 0
    while done <= count:
        done += await complete_all(broker, print)
        await broker.store.resume_held()
    return perf_counter() - began


async def compare_step(url: str) -> float:
    """Returns the median time of a step in that of one durable write: a plain publish.

    They are measured in turn, because the speed of the machine and of its disk changes.
    """
    app = Penstock(url)
    broker = await app.broker()

    async def nothing() -> None: ...

    @app.task(queue="compared")
    async def compare(context: Context) -> float:
        publishes, steps = [], []
        for _ in range(COMPARED):
            began = perf_counter()
            await broker.publish(Draft(body=b"1"))
            between = perf_counter()
            await context.step("nothing", nothing)
            publishes.append(between - began)
            steps.append(perf_counter() - between)
        return median(steps) / median(publishes)

    async with await app.worker():
        ratio = await (await compare.aenqueue()).aresult()
    await app.aclose()
    return ratio


async def run_steps(url: str, steps: int) -> tuple[float, float]:
    """Runs one task with many steps; returns the seconds of each, and peak memory.

    Tracing slows the steps down, so the memory is that of a second run.
    """
    app = Penstock(url)

    async def nothing() -> None: ...

    @app.task(queue="steps", timeout=3_600)
    async def many(context: Context) -> float:
        began = perf_counter()
        for _ in range(steps):
            await context.step("nothing", nothing)
        return (perf_counter() - began) / steps

    async with await app.worker():
        seconds = await (await many.aenqueue()).aresult()
        tracemalloc.start()
        await (await many.aenqueue()).aresult()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    await app.aclose()
    return seconds, peak


async def put_to_sleep(broker: Broker, count: int, delay: float) -> None:
    queue = await broker.get_queue("default")
    hold = Hold(kind="moment", delay=delay)
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        await broker.store.enqueue([Entry(queue.id, "message", b"1")] * size)
        for each in (await broker.claim("default", limit=size, consumer="bench")).messages:
            await broker.store.wait(
                Wait(
                    id=each.id, fence=each.fence, seen_flags=each.flags, attempts=0, deliveries=0,
                    reason="sleep", holds=(hold,),
                )
            )  # fmt: skip
    while (await broker.store.resume_held()).seen:
        pass


async def measure_idle(broker: Broker) -> float:
    """Returns the CPU seconds of a tick of the scheduler that has nothing to do."""
    agent = Scheduler(broker.store, broker.directory, "bench")
    await agent.tick()
    began = process_time()
    for _ in range(IDLE_TICKS):
        await agent.tick()
    return (process_time() - began) / IDLE_TICKS


async def measure_lateness(broker: Broker) -> float:
    """Wakes waves of sleepers among many; returns how late they are at the 99th percentile."""
    agent, late = Scheduler(broker.store, broker.directory, "bench"), []
    for _ in range(WAVES):
        await put_to_sleep(broker, WAVE, NAP_S)
        due = perf_counter() + NAP_S
        found = 0
        while found < WAVE:
            pause = await agent.tick()
            found += await complete_all(broker)
            if found < WAVE:
                await asyncio.sleep(pause)
        late.append(perf_counter() - due)
    return quantiles(late, n=100)[98]


async def measure_signals(url: str) -> tuple[float, float]:
    """Returns the medians of publish-to-run and signal-to-resume."""
    app = Penstock(url)
    ran = asyncio.Event()

    @app.task(queue="quick")
    async def quick(context: Context) -> None:
        ran.set()

    @app.task(queue="waits")
    async def waits(context: Context) -> None:
        await context.signal("go")
        ran.set()

    plain, resumed = [], []
    async with await app.worker(), app.agents(await app.broker()):
        for _ in range(SAMPLES):
            ran.clear()
            await asyncio.sleep(REST_S)
            began = perf_counter()
            await quick.aenqueue()
            await ran.wait()
            plain.append(perf_counter() - began)
            ran.clear()
            job = await waits.aenqueue()
            while (await job.astatus()).value != "scheduled":  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            await asyncio.sleep(REST_S)
            began = perf_counter()
            await app.asignal(job.id, "go", 1)
            await ran.wait()
            resumed.append(perf_counter() - began)
    await app.aclose()
    return median(plain), median(resumed)


async def drain_in_turn(url: str, count: int) -> list[float]:
    """Drains as often as `measure` does, without waits: a store grows, and is slower then."""
    async with Broker(await stores.open(url)) as broker:
        times = [await drain(broker, count) for _ in range(6)]
    return times[-2:]


async def measure(name: str, url: str, other: str, count: int, sleepers: int) -> None:
    print(f"{name}, {count:,} messages, {sleepers:,} sleepers")
    control = await drain_in_turn(other, count)
    async with Broker(await stores.open(url)) as broker:
        plain = [await drain(broker, count) for _ in range(2)]
        joined = [await measure_fan_in(broker, count) for _ in range(2)]
        again = [await drain(broker, count) for _ in range(2)]
        judge("plain drain after waits / without", min(again) / min(control), 1.2)
        judge("fan-in / the same without edges", min(plain) / min(joined), 0.5, least=True)
        idle = await measure_idle(broker)
        await put_to_sleep(broker, sleepers, 3_600.0)
        judge("idle tick with sleepers / without", await measure_idle(broker) / idle, 1.5)
        judge("lateness of due sleepers, p99", await measure_lateness(broker), 1.0, " s")
    few, many = await run_steps(url, count // 10), await run_steps(url, count)
    judge("step / publish of one message, p50", await compare_step(url), 1.5)
    judge(f"time of a step, {count:,} / {count // 10:,} steps", many[0] / few[0], 1.5)
    judge(f"memory, {count:,} / {count // 10:,} steps", many[1] / few[1], 12.0)
    run, resumed = await measure_signals(url)
    judge("signal to resumed / publish to run, p50", resumed / run, 2.0)


@contextmanager
def open_urls(name: str, folder: str) -> Iterator[tuple[str, ...]]:
    if name == "sqlite":
        yield tuple(f"sqlite:///{Path(folder) / file}" for file in ("bench.db", "control.db"))
        return
    with (
        postgres.Postgres({}) as server,
        server.database() as url,
        server.database() as other,
    ):
        yield url, other


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--sleepers", type=int, default=100_000)
    given = parser.parse_args()
    for name in given.stores:
        with (
            TemporaryDirectory(prefix="penstock-bench-") as folder,
            open_urls(name, folder) as urls,
        ):
            asyncio.run(measure(name, *urls, given.count, given.sleepers))


if __name__ == "__main__":
    main()
