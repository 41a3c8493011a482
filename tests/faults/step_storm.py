"""Kills workers whose tasks have durable steps, and checks what the steps wrote to a file.

Command line: python -m tests.faults.step_storm STORE [--seconds N] [--seed N].

Each step writes a line when its function runs, and each run writes what its steps returned. No step
may run again once a run has seen its result, its result never changes, every wait ends, and what
waits for others runs once and with all of them.
"""

import argparse
import asyncio
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from penstock import Context, Penstock, group, stores
from penstock.broker.waiting.inbox import Inbox
from penstock.errors import Conflict, PenstockError, StoreError
from penstock.model.message import State
from penstock.model.workflow import WorkflowState
from penstock.rules.human import Person
from penstock.worker.options import WorkerOptions
from penstock.worker.process import WorkerProcess
from tests.faults.storm.__main__ import GROUNDS
from tests.faults.storm.program import die_with_parent
from tests.faults.storm.scene import Stores
from tests.local import local

SECONDS = 20.0
DRAIN_S = 240.0
WORKERS = 3
CHILDREN = 3
PARENTS = 4
OPTIONS = WorkerOptions(concurrency=8, grace=1.0)
SPEC = {
    "title": "Pay back?",
    "decision": {"options": [{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}]},
    "assign": {"users": ["ann"]},
    "on_timeout": {"decide": "no"},
}
ANN = Person("ann")
context = get_context("forkserver")


class Line(NamedTuple):
    """What a process wrote: `run` or `see`, the message, its fence, the step and its value."""

    kind: str
    id: str
    fence: int
    name: str
    value: str


def write(path: Path, *words: object) -> None:
    """Appends a line in one call, so that lines of several processes keep their order."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)


def make_app(url: str, path: Path) -> dict[str, Any]:
    app = Penstock(url)
    app.queue("steps", lease=5.0, max_deliveries=1_000, max_attempts=1_000)

    async def work(context: Context, name: str, pause: float = 0.02) -> str:
        """Runs a step that returns a new value, and writes down what the run got."""

        async def effect() -> str:
            value = secrets.token_hex(4)
            write(path, "run", context.id, context.fence, name, value)
            await asyncio.sleep(random.random() * pause)
            return value

        value: str = await context.step(name, effect)
        write(path, "see", context.id, context.fence, name, value)
        return value

    @app.task(name="part", queue="steps")
    async def part(context: Context, owner: str) -> str:
        await work(context, f"part-of-{owner}")
        return owner

    @app.task(name="long", queue="steps")
    async def long(context: Context, number: int) -> str:
        for place in range(4):
            await work(context, f"before-{place}")
        await context.sleep(0.2)
        await work(context, "slept")
        outcomes = await context.gather(*[part.call(str(context.id)) for _ in range(CHILDREN)])
        write(path, "see", context.id, context.fence, "children", len(outcomes))
        told = await context.signal("go", timeout="10m")
        write(path, "see", context.id, context.fence, "signal", told)
        answer = await context.approve(SPEC, timeout=1 + number % 4)
        write(path, "see", context.id, context.fence, "answer", answer.choice)
        return await work(context, "last")

    @app.task(name="join", queue="steps")
    async def join(context: Context, owner: str) -> int:
        results = await context.results()
        write(path, "see", context.id, context.fence, f"joined-{owner}", len(results))
        await work(context, "fire")
        return len(results)

    return {"app": app, "part": part, "long": long, "join": join}


def run_worker(url: str, path: Path) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = os.open(path.with_name("workers.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    asyncio.run(serve(url, path))


async def serve(url: str, path: Path) -> None:
    app = make_app(url, path)["app"]
    worker = await app.worker(options=OPTIONS)
    await WorkerProcess(worker, app.agents(worker.broker)).run()
    await app.aclose()


class StepStorm:
    def __init__(self, url: str, path: Path, seconds: float, seed: int) -> None:
        self.url = url
        self.path = path
        self.seconds = seconds
        self.random = random.Random(seed)
        self.workers: list[Any] = []
        self.kills = 0
        self.jobs: list[Any] = []
        self.flows: list[Any] = []
        self.decided: dict[int, bool] = {}

    def start_worker(self) -> Any:
        child = context.Process(target=run_worker, args=(self.url, self.path), daemon=True)
        child.start()
        return child

    async def run(self) -> list[str]:
        made = make_app(self.url, self.path)
        app: Penstock = made["app"]
        await app.asetup()
        self.workers = [self.start_worker() for _ in range(WORKERS)]
        ends_at = time.monotonic() + self.seconds
        answering = asyncio.create_task(self.answer(app))
        try:
            while time.monotonic() < ends_at:
                await self.begin_work(made)
                await asyncio.sleep(self.random.uniform(0.05, 0.3))
                if self.random.random() < 0.3:
                    self.kill_one()
            problems = await self.drain()
        finally:
            answering.cancel()
            with suppress(asyncio.CancelledError):
                await answering
            for child in self.workers:
                child.kill()
        problems += check(self.read_lines(), [str(job.id) for job in self.jobs], self.list_joins())
        problems += await self.examine(app)
        await app.aclose()
        return problems

    async def begin_work(self, made: dict[str, Any]) -> None:
        self.jobs.append(await made["long"].aenqueue(len(self.jobs)))
        if len(self.jobs) % 3 == 0:
            owner = str(len(self.flows))
            parts = [made["part"].call(f"flow-{owner}") for _ in range(PARENTS)]
            self.flows.append(await group(*parts).then(made["join"].call(owner)).aenqueue())

    def kill_one(self) -> None:
        place = self.random.randrange(len(self.workers))
        self.workers[place].kill()
        self.workers[place].join()
        self.workers[place] = self.start_worker()
        self.kills += 1

    async def answer(self, app: Penstock) -> None:
        """Sends the signals, and decides some of the steps while their timeout decides others."""
        signalled: set[int] = set()
        inbox = local(await app.broker()).inbox
        while True:
            for job in self.jobs:
                if job.id not in signalled:
                    with suppress(PenstockError):
                        await app.asignal(job.id, "go", f"for-{job.id}", key="once")
                        signalled.add(job.id)
            for found in await inbox.list_steps(ANN):
                if found.step.id not in self.decided and self.random.random() < 0.1:
                    await self.decide(inbox, found.step.id)
            await asyncio.sleep(0.1)

    async def decide(self, inbox: Inbox, id: int) -> None:
        try:
            await inbox.decide(id, ANN, "yes")
            self.decided[id] = True
        except Conflict:
            self.decided[id] = False
        except StoreError:
            # It is asked again; a decision that was stored then answers with a conflict.
            pass

    async def drain(self) -> list[str]:
        """Waits until everything has ended. What has not is a problem."""
        left: list[Any] = [*self.jobs]
        flows: list[Any] = [*self.flows]
        ends_at = time.monotonic() + DRAIN_S
        while (left or flows) and time.monotonic() < ends_at:
            for place, child in enumerate(self.workers):
                if not child.is_alive():
                    self.workers[place] = self.start_worker()
            left = [job for job in left if (await job.astatus()) is not State.COMPLETED]
            flows = [f for f in flows if (await f.aview()).workflow.state is WorkflowState.RUNNING]
            await asyncio.sleep(0.2)
        found = [f"message {job.id} is {(await job.astatus()).value}" for job in left]
        found += [f"workflow {flow.id} runs on" for flow in flows]
        states = Counter([(await flow.aview()).workflow.state for flow in self.flows])
        if set(states) - {WorkflowState.COMPLETED}:
            found.append(f"workflows ended as {dict(states)}")
        return found

    def list_joins(self) -> list[str]:
        return [str(flow.ids[-1]) for flow in self.flows]

    def read_lines(self) -> list[Line]:
        rows = [text.split(" ") for text in self.path.read_text().splitlines()]
        return [Line(kind, id, int(fence), name, value) for kind, id, fence, name, value in rows]

    async def examine(self, app: Penstock) -> list[str]:
        """The doctor finds nothing torn, and no wait is left."""
        async with await stores.open(self.url) as store:
            checks = await store.examine()
            waits = await store.count_waits()
        found = [f"{each.name}: {each.text}" for each in checks if not each.ok]
        return found + ([f"{waits} waits are left"] if waits else [])


def check(lines: list[Line], jobs: list[str], joins: list[str]) -> list[str]:
    """Returns which promises about steps were broken."""
    seen, problems = replay(lines)
    for id in jobs:
        problems += check_job(lines, seen, id)
    for place, id in enumerate(joins):
        joined = seen.get((id, f"joined-{place}"))
        if joined is None or joined.value != str(PARENTS) or (id, "fire") not in seen:
            problems.append(f"fan-in {id} of workflow {place}: {joined}")
    return problems


def replay(lines: list[Line]) -> tuple[dict[tuple[str, str], Line], list[str]]:
    """Returns what runs saw of each step first, and steps that ran or changed after that."""
    seen: dict[tuple[str, str], Line] = {}
    problems: list[str] = []
    for line in lines:
        step = (line.id, line.name)
        if line.kind == "see":
            first = seen.setdefault(step, line)
            if first.value != line.value:
                problems.append(f"{step} returned {first.value}, later {line.value}")
        elif step in seen and line.fence >= seen[step].fence:
            problems.append(f"{step} ran again after a run had its result")
    return seen, problems


def check_job(lines: list[Line], seen: dict[tuple[str, str], Line], id: str) -> list[str]:
    problems = [f"message {id}: no {name}" for name in WANTED if (id, name) not in seen]
    children = {line.id for line in lines if line.name == f"part-of-{id}"}
    if len(children) != CHILDREN:
        problems.append(f"message {id} has {len(children)} children")
    told = seen.get((id, "signal"))
    if told is not None and told.value != f"for-{id}":
        problems.append(f"message {id} received {told.value}")
    return problems


WANTED = ("before-0", "before-3", "slept", "children", "signal", "answer", "last")


async def rage(
    store: Stores, seconds: float, seed: int, directory: Path
) -> tuple[StepStorm, list[str]]:
    async with GROUNDS[store](directory) as ground:
        storm = StepStorm(ground.urls[0], directory / "steps.txt", seconds, seed)
        return storm, await storm.run()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.step_storm", description=__doc__)
    parser.add_argument("store", choices=list(GROUNDS))
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="how long workers are killed"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    asked = parser.parse_args(arguments)
    context.set_forkserver_preload(PRELOAD)
    with tempfile.TemporaryDirectory(prefix="penstock-steps-") as directory:
        storm, problems = asyncio.run(
            rage(asked.store, asked.seconds, asked.seed, Path(directory).resolve())
        )
        runs = sum(line.kind == "run" for line in storm.read_lines())
    won = sum(storm.decided.values())
    print(
        f"seed {asked.seed}: {storm.kills} workers killed, {len(storm.jobs)} tasks,"
        f" {len(storm.flows)} workflows, {runs} runs of steps,"
        f" {won} of {len(storm.decided)} decisions came before their timeout"
    )
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("VALID" if not problems else "INVALID")
    return 1 if problems else 0


PRELOAD = [
    "penstock.stores.sqlite.store",
    "penstock.stores.postgres.store",
    "penstock.stores.mariadb.store",
    "penstock.stores.redis.store",
    "tests.faults.storm.nursery",
]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
