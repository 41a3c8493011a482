"""What the demo shows: each act does something, checks what came of it, and says so."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from penstock.broker.local import Broker
from penstock.cli.commands.jobs import JobText
from penstock.cli.demo import app as tasks
from penstock.errors import JobFailed
from penstock.model.message import Draft, Record, State
from penstock.model.queue import QueueState

TIMEOUT_S = 20.0
POLL_INTERVAL_S = 0.02
ENDED = (State.COMPLETED, State.CANCELLED, State.DEAD)


class DemoStage:
    def __init__(self, broker: Broker, url: str, folder: Path) -> None:
        self.broker = broker
        self.url = url
        self.folder = folder

    async def wait_until(self, right: Callable[[Record], bool], *ids: int) -> list[Record]:
        """The messages, when they are all as they should be."""
        for _ in range(int(TIMEOUT_S / POLL_INTERVAL_S)):
            records = [await self.broker.admin.get(id) for id in ids]
            if all(map(right, records)):
                return records
            await asyncio.sleep(POLL_INTERVAL_S)
        raise TimeoutError

    async def wait_until_ended(self, *ids: int) -> list[State]:
        records = await self.wait_until(lambda each: each.state in ENDED, *ids)
        return [record.state for record in records]

    async def list_verbs(self, id: int) -> str:
        record = await self.broker.admin.get(id)
        return ", ".join(row.verb.value for row in record.timeline)


Act: TypeAlias = Callable[[DemoStage], Awaitable[str]]


def check(right: bool, text: str) -> str:
    if not right:
        raise JobFailed(text)
    return text


async def a_task(stage: DemoStage) -> str:
    job = await tasks.add.aenqueue(2, 3)
    result = await job.aresult(TIMEOUT_S)
    return check(result == 5, f"add.enqueue(2, 3).result() is {result}")


async def many_at_once(stage: DemoStage) -> str:
    jobs = await tasks.app.aenqueue_many(tasks.add.call(n, n) for n in range(100))
    results = [await job.aresult(TIMEOUT_S) for job in jobs]
    told = f"100 jobs in one durable step; their results add up to {sum(results)}"
    return check(sum(results) == 9_900, told)


async def retries(stage: DemoStage) -> str:
    job = await tasks.call_server.aenqueue()
    result = await job.aresult(TIMEOUT_S)
    verbs = await stage.list_verbs(job.id)
    return check(verbs == "nack, nack, complete", f"{verbs}: {result!r}")


async def dead_letters(stage: DemoStage) -> str:
    path = stage.folder / "missing.txt"
    job = await tasks.read.aenqueue(str(path))
    await stage.wait_until_ended(job.id)
    await asyncio.to_thread(path.write_text, "found")
    await stage.broker.admin.redrive(job.id)
    result = await job.aresult(TIMEOUT_S)
    verbs = await stage.list_verbs(job.id)
    return check(result == "found", f"{verbs}: no such file, dead, repaired, redriven, {result!r}")


async def time_limit(stage: DemoStage) -> str:
    job = await tasks.get_stuck.aenqueue()
    await stage.wait_until_ended(job.id)
    error = (await job.arecord()).error or ""
    return check("TimedOut" in error, f"a run that takes too long ends: {error}")


async def delay(stage: DemoStage) -> str:
    job = await tasks.add.options(delay=0.5).aenqueue(1, 1)
    first = await job.astatus()
    await job.aresult(TIMEOUT_S)
    (row,) = (await job.arecord()).timeline
    waited = (row.at - (await job.arecord()).message.created_at) / 1_000_000
    return check(first is State.SCHEDULED and waited >= 0.5, f"ran {waited:.1f} s after enqueueing")


async def priorities(stage: DemoStage) -> str:
    await in_line(stage, [(f"priority {n}", {"priority": n}) for n in (1, 9, 5)])
    begun = [text for text in tasks.seen if "done" not in text]
    return check(
        begun == ["priority 9", "priority 5", "priority 1"], f"in order {', '.join(begun)}"
    )


async def keys(stage: DemoStage) -> str:
    await in_line(stage, [(f"step {n}", {"key": "customer-7"}) for n in (1, 2, 3)])
    expected = [text for n in (1, 2, 3) for text in (f"step {n}", f"step {n} done")]
    return check(tasks.seen == expected, f"one at a time: {', '.join(tasks.seen)}")


async def in_line(stage: DemoStage, notes: list[tuple[str, dict[str, Any]]]) -> None:
    """Enqueued while the queue is paused, so that all are there when it is resumed."""
    tasks.seen.clear()
    await tasks.app.ensure_queues(stage.broker, ["line"])
    await stage.broker.admin.set_state("line", QueueState.PAUSED)
    jobs = [await tasks.note.options(**options).aenqueue(text) for text, options in notes]
    await stage.broker.admin.set_state("line", QueueState.ACTIVE)
    for job in jobs:
        await job.aresult(TIMEOUT_S)


async def unique(stage: DemoStage) -> str:
    welcome = tasks.add.options(unique="welcome-7", delay=0.3)
    first, second = await welcome.aenqueue(1, 2), await welcome.aenqueue(1, 2)
    same = second.duplicate and first.id == second.id
    await first.aresult(TIMEOUT_S)
    return check(same, f"enqueued twice under one key, and both are job {first.id}")


async def batches(stage: DemoStage) -> str:
    bodies = [{"number": n, "total": 0 if n == 2 else 9.5} for n in range(1, 6)]
    drafts = [
        Draft(queue="orders", body=msgspec.json.encode(body), max_attempts=1) for body in bodies
    ]
    ended = await stage.wait_until_ended(
        *(each.id for each in await stage.broker.publish_many(drafts))
    )
    told = f"5 orders in one call: {ended.count(State.COMPLETED)} completed, 1 refused"
    return check(ended.count(State.DEAD) == 1, told)


async def cancel(stage: DemoStage) -> str:
    job = await tasks.count.aenqueue(1_000)
    (record,) = await stage.wait_until(lambda each: bool(each.percent), job.id)
    await job.acancel()
    ended = await stage.wait_until_ended(job.id)
    told = f"it said {record.note!r}, was asked to stop, and stopped"
    return check(ended == [State.CANCELLED], told)


async def a_process(stage: DemoStage) -> str:
    pid = await (await tasks.whereabouts.aenqueue()).aresult(TIMEOUT_S)
    return check(pid != os.getpid(), f"ran in process {pid}, not in {os.getpid()}")


async def cron(stage: DemoStage) -> str:
    (schedule,) = await stage.broker.admin.schedules()
    ended = await stage.wait_until_ended((await stage.broker.publish(schedule.draft)).id)
    told = f"{schedule.cron!r} in {schedule.timezone} is kept; run once by hand"
    return check(ended == [State.COMPLETED], told)


async def shell(stage: DemoStage) -> str:
    draft = JobText(command="echo hi from $$; exit 0", id="j1").make_draft()
    id = (await stage.broker.publish(draft)).id
    await stage.wait_until_ended(id)
    path = stage.folder / "demo.db.jobs" / str(id) / "stdout.log"
    text = (await asyncio.to_thread(path.read_text)).splitlines()[-1]
    return check(text.startswith("hi"), f"/bin/sh said {text!r}, kept in {path.name}")


async def crash(stage: DemoStage) -> str:
    path = stage.folder / "pid.txt"
    job = await tasks.survive.aenqueue(str(path))
    with start_worker(stage) as first:
        await stage.wait_until(lambda _: path.exists(), job.id)
        first.send_signal(signal.SIGKILL)
        killed_at = await stage.broker.store.now()
    with start_worker(stage, "--stop-when-empty"):
        deliveries = await job.aresult(TIMEOUT_S)
    waited = ((await job.arecord()).timeline[-1].at - killed_at) / 1_000_000
    told = f"kill -9 of its worker, with a lease of 1 s: done by another {waited:.1f} s later"
    return check(deliveries == 2, told)


def start_worker(stage: DemoStage, *words: str) -> "subprocess.Popen[bytes]":
    command = ["worker", "start", f"{tasks.__name__}:app", "--queue", "crash", "--url", stage.url]
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *command, *words], stderr=subprocess.DEVNULL
    )


ACTS: dict[str, Act] = {
    "a task": a_task,
    "many at once": many_at_once,
    "retries": retries,
    "dead letters": dead_letters,
    "a time limit": time_limit,
    "a delay": delay,
    "priorities": priorities,
    "a line per key": keys,
    "unique jobs": unique,
    "batches": batches,
    "progress, cancel": cancel,
    "a process": a_process,
    "cron": cron,
    "a shell job": shell,
    "a crash": crash,
}
