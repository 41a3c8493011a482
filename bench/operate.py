"""Measures what operating costs: the agents that derive metrics, anomalies and seals.

Command line: python -m bench.operate [STORE URL]. The agents run in a process of their own beside
one that publishes, claims and completes, so that their processor time can be told apart.
"""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, process_time

from bench.figures import Figure, compared, summed_up
from bench.table import HEADER, Target, json_line, line
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
SECONDS = 15
DRAINED = 50_000
REPEATS = 3
CPU_TARGET = Target("value", "<=", 0.03)
DRAIN_TARGET = Target("ratio", ">=", 0.97)


def make_agents(store: Store) -> list[Agent]:
    directory = Broker(store).directory
    return [
        Historian(store, directory, "bench"),
        AnomalyDetector(store, directory, "bench"),
        AuditSealer(store, directory, "bench"),
    ]


async def run_agents(url: str, seconds: float) -> float:
    """Returns the part of a core that the agents used."""
    async with await stores.open(url) as store:
        # What lay there before is not what is measured.
        historian = Historian(store, Broker(store).directory, "bench")
        while await historian.tick() == 0:
            pass
        print("ready", flush=True)
        began, used = monotonic(), process_time()
        async with Runner(make_agents(store)):
            await asyncio.sleep(seconds)
        return (process_time() - used) / (monotonic() - began)


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


class AgentProcess:
    """The agents in another process, until it has told what they used."""

    def __init__(self, url: str, seconds: float) -> None:
        command = [sys.executable, "-m", "bench.operate", url, "--agents", str(seconds)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def end(self) -> float:
        told, _ = self.process.communicate()
        return float(told)

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()


def measure_agents(url: str) -> tuple[Figure, Target]:
    shares, rates = [], []
    for _ in range(REPEATS):
        agents = AgentProcess(url, SECONDS)
        rates.append(asyncio.run(keep_busy(url, RATE, SECONDS)))
        shares.append(agents.end())
    print(f"# at {sum(rates) / len(rates):,.0f} msg/s", file=sys.stderr)
    return summed_up("agents", "cores", shares), CPU_TARGET


def measure_drain(url: str) -> tuple[Figure, Target]:
    alone, beside = [], []
    for _ in range(REPEATS):
        alone.append(asyncio.run(drain(url, DRAINED)))
        agents = AgentProcess(url, 600)
        beside.append(asyncio.run(drain(url, DRAINED)))
        agents.stop()
    return compared("drain beside agents", "msg/s", alone, beside), DRAIN_TARGET


MEASURES: dict[str, Callable[[str], tuple[Figure, Target]]] = {
    "agents": measure_agents,
    "drain": measure_drain,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench operate", description="Benchmark operating.")
    parser.add_argument("url", nargs="?", help="store; default: a new SQLite file")
    parser.add_argument("--only", choices=MEASURES, help="one measure")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--agents", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.agents is not None:
        print(asyncio.run(run_agents(asked.url, asked.agents)))
        return
    with TemporaryDirectory(prefix="penstock-bench-") as folder:
        url = asked.url or f"sqlite:///{Path(folder)}/queue.db"
        if not asked.json:
            print(HEADER)
        for name, measure in MEASURES.items():
            if asked.only in (None, name):
                figure, target = measure(url)
                print(json_line("operate", figure) if asked.json else line(figure, target))


if __name__ == "__main__":
    main()
