"""Measures what operating costs: searches, explain, bulk actions, and the agents that derive
metrics, anomalies and seals.

Command line: python -m bench.operate [sqlite | postgres | STORE URL]... The agents and the bulk
action run in processes of their own beside one that publishes, claims and completes, so that their
processor time can be told apart.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, process_time

from bench.bulk import DEAD, MESSAGES, REDRIVES, measure_bulk, redrive_aside
from bench.figures import Figure, compare_values, summarise
from bench.postgres import Postgres
from bench.processes import SideProcess
from bench.table import HEADER, Target, format_json_line, format_line
from penstock import stores
from penstock.agents.anomaly_detector import AnomalyDetector
from penstock.agents.audit_sealer import AuditSealer
from penstock.agents.historian import Historian
from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.model.store_types import Completion
from penstock.runner import Agent, Runner
from penstock.store import Store

BATCH = 250
RATE = 5_000
SECONDS = 10
DRAINED = 50_000
REPEATS = 3
HOME = Path(__file__).parents[1] / ".bench"
CPU_TARGET = Target("value", "<=", 3)
DRAIN_TARGET = Target("ratio", ">=", 0.97)


def make_agents(store: Store) -> list[Agent]:
    directory = Broker(store).directory
    return [
        Historian(store, directory, "bench"),
        AnomalyDetector(store, directory, "bench"),
        AuditSealer(store, directory, "bench"),
    ]


async def run_agents(url: str, seconds: float) -> float:
    """Returns the percentage of a core that the agents used for the messages of that time."""
    async with await stores.open(url) as store:
        # What lay there before is not what is measured.
        await count_all(store)
        print("ready", flush=True)
        began, used = monotonic(), process_time()
        async with Runner(make_agents(store)):
            await asyncio.sleep(seconds)
        passed = monotonic() - began
        # What the historian has left for later is part of its work.
        await count_all(store)
        return 100 * (process_time() - used) / passed


async def count_all(store: Store) -> None:
    historian = Historian(store, Broker(store).directory, "bench")
    while await historian.has_news():
        await historian.advance()


async def work(broker: Broker, count: int) -> None:
    """Publishes, claims and completes one batch."""
    await broker.publish_many([Draft(body=b"x" * 100)] * count)
    claimed = await broker.claim("default", limit=count, consumer="bench")
    await broker.complete_many([Completion(each.id, each.fence) for each in claimed.messages])


async def keep_busy(url: str, rate: int, seconds: float) -> float:
    """Works at a rate. Returns the rate that was reached."""
    async with await stores.open(url) as store:
        broker = Broker(store)
        began, done = monotonic(), 0
        while (passed := monotonic() - began) < seconds:
            if done >= passed * rate:
                await asyncio.sleep(0.005)
                continue
            await work(broker, BATCH)
            done += BATCH
        return done / (monotonic() - began)


async def drain(url: str, count: int) -> float:
    """Returns the messages per second that one consumer completes."""
    async with await stores.open(url) as store:
        broker = Broker(store)
        for _ in range(count // 1_000):
            await broker.publish_many([Draft(body=b"x" * 100)] * 1_000)
        began, done = monotonic(), 0
        while taken := (await broker.claim("default", limit=BATCH, consumer="bench")).messages:
            await broker.complete_many([Completion(each.id, each.fence) for each in taken])
            done += len(taken)
        return done / (monotonic() - began)


def start_agents(url: str, seconds: float) -> SideProcess:
    return SideProcess("bench.operate", url, "--agents", str(seconds))


def measure_agents(url: str) -> tuple[Figure, Target]:
    shares, rates = [], []
    for _ in range(REPEATS):
        agents = start_agents(url, SECONDS)
        rates.append(asyncio.run(keep_busy(url, RATE, SECONDS)))
        shares.append(agents.end())
    print(f"# at {sum(rates) / len(rates):,.0f} msg/s", file=sys.stderr)
    return summarise("agents", "% core", shares), CPU_TARGET


def measure_drain(url: str) -> tuple[Figure, Target]:
    alone, beside = [], []
    for _ in range(REPEATS):
        alone.append(asyncio.run(drain(url, DRAINED)))
        agents = start_agents(url, 600)
        beside.append(asyncio.run(drain(url, DRAINED)))
        agents.stop()
    return compare_values("drain beside agents", "msg/s", alone, beside), DRAIN_TARGET


@contextmanager
def open_fresh(subject: str, folder: Path) -> Iterator[str]:
    """Yields the URL of an empty store; a URL is taken as it is."""
    if subject == "sqlite":
        with TemporaryDirectory(prefix="operate-", dir=folder) as place:
            yield f"sqlite:///{place}/queue.db"
    elif subject == "postgres":
        with Postgres(folder).fresh() as url:
            yield url
    else:
        yield subject


def measure(subject: str, asked: argparse.Namespace) -> Iterator[tuple[Figure, Target]]:
    if asked.only in (None, "bulk"):
        with open_fresh(subject, HOME) as url:
            yield from asyncio.run(measure_bulk(url, asked.messages, asked.dead))
    for name, measure_one in (("agents", measure_agents), ("drain", measure_drain)):
        if asked.only in (None, name):
            with open_fresh(subject, HOME) as url:
                yield measure_one(url)


def run_beside(asked: argparse.Namespace) -> float | None:
    """Runs what another process of this module asked for."""
    if asked.redrive is not None:
        return asyncio.run(redrive_aside(asked.stores[0], asked.redrive))
    if asked.agents is not None:
        return asyncio.run(run_agents(asked.stores[0], asked.agents))
    return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench operate", description="Benchmark operating.")
    parser.add_argument("stores", nargs="*", help="sqlite, postgres or URLs of empty stores")
    parser.add_argument("--only", choices=("bulk", "agents", "drain"), help="one group of measures")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="stored messages")
    parser.add_argument("--dead", type=int, default=DEAD, help="dead letters to redrive")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--agents", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--redrive", choices=REDRIVES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if (used := run_beside(asked)) is not None:
        print(used)
        return
    HOME.mkdir(exist_ok=True)
    for subject in asked.stores or ("sqlite", "postgres"):
        if not asked.json:
            print(f"# {subject.partition(':')[0]}\n{HEADER}", flush=True)
        for figure, target in measure(subject, asked):
            told = format_json_line(subject.partition(":")[0], figure)
            print(told if asked.json else format_line(figure, target), flush=True)


if __name__ == "__main__":
    main()
