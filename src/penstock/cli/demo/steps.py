"""The steps of the demo. Each one runs a feature, checks the result and describes it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from penstock import stores
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.broker.local import Broker
from penstock.cli.commands.jobs import JobText
from penstock.cli.demo import app as tasks
from penstock.cli.demo.app import Order, resize, send_mail
from penstock.errors import JobFailed
from penstock.model.message import Draft, Record, State
from penstock.model.queue import QueueState
from penstock.model.store_types import Published

TIMEOUT_S = 20.0
POLL_INTERVAL_S = 0.02
ENDED = (State.COMPLETED, State.CANCELLED, State.DEAD)


class DemoStage:
    def __init__(self, broker: BrokerInterface, url: str, folder: Path) -> None:
        self.broker = broker
        self.url = url
        self.folder = folder

    async def wait_until(self, right: Callable[[Record], bool], *ids: int) -> list[Record]:
        """Wait until the condition holds for all messages, and return them."""
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


DemoStep: TypeAlias = Callable[[DemoStage], Awaitable[str]]


def check(right: bool, text: str) -> str:
    if not right:
        raise JobFailed(text)
    return text


async def run_task(stage: DemoStage) -> str:
    job = await tasks.add.aenqueue(2, 3)
    result = await job.aresult(TIMEOUT_S)
    return check(result == 5, f"add.enqueue(2, 3).result() is {result}")


async def enqueue_many(stage: DemoStage) -> str:
    jobs = await tasks.app.aenqueue_many(tasks.add.call(n, n) for n in range(100))
    results = [await job.aresult(TIMEOUT_S) for job in jobs]
    text = f"100 jobs enqueued in one transaction; the sum of their results is {sum(results)}"
    return check(sum(results) == 9_900, text)


async def retry_failures(stage: DemoStage) -> str:
    job = await tasks.call_server.aenqueue()
    result = await job.aresult(TIMEOUT_S)
    verbs = await stage.list_verbs(job.id)
    return check(verbs == "nack, nack, complete", f"{verbs}: {result!r}")


async def redrive_dead_letter(stage: DemoStage) -> str:
    path = stage.folder / "missing.txt"
    job = await tasks.read.aenqueue(str(path))
    await stage.wait_until_ended(job.id)
    await asyncio.to_thread(path.write_text, "found")
    await stage.broker.admin.redrive(job.id)
    result = await job.aresult(TIMEOUT_S)
    verbs = await stage.list_verbs(job.id)
    return check(
        result == "found", f"{verbs}: file missing, dead, file created, redriven, {result!r}"
    )


async def time_out(stage: DemoStage) -> str:
    job = await tasks.get_stuck.aenqueue()
    await stage.wait_until_ended(job.id)
    error = (await job.arecord()).error or ""
    return check("TimedOut" in error, f"a job over its time limit was stopped: {error}")


async def delay_job(stage: DemoStage) -> str:
    job = await tasks.add.options(delay=0.5).aenqueue(1, 1)
    first = await job.astatus()
    await job.aresult(TIMEOUT_S)
    (row,) = (await job.arecord()).timeline
    waited = (row.at - (await job.arecord()).message.created_at) / 1_000_000
    return check(
        first is State.SCHEDULED and waited >= 0.5, f"ran {waited:.1f} s after it was enqueued"
    )


async def order_by_priority(stage: DemoStage) -> str:
    await run_in_line(stage, [(f"priority {n}", {"priority": n}) for n in (1, 9, 5)])
    begun = [text for text in tasks.seen if "done" not in text]
    return check(begun == ["priority 9", "priority 5", "priority 1"], f"order: {', '.join(begun)}")


async def order_by_key(stage: DemoStage) -> str:
    await run_in_line(stage, [(f"step {n}", {"key": "customer-7"}) for n in (1, 2, 3)])
    expected = [text for n in (1, 2, 3) for text in (f"step {n}", f"step {n} done")]
    return check(tasks.seen == expected, f"one at a time: {', '.join(tasks.seen)}")


async def run_in_line(stage: DemoStage, notes: list[tuple[str, dict[str, Any]]]) -> None:
    """Enqueue while the queue is paused, so that all jobs are ready when it resumes."""
    tasks.seen.clear()
    await tasks.app.ensure_queues(stage.broker, ["line"])
    await stage.broker.admin.set_state("line", QueueState.PAUSED)
    jobs = [await tasks.note.options(**options).aenqueue(text) for text, options in notes]
    await stage.broker.admin.set_state("line", QueueState.ACTIVE)
    for job in jobs:
        await job.aresult(TIMEOUT_S)


async def enqueue_unique(stage: DemoStage) -> str:
    welcome = tasks.add.options(unique="welcome-7", delay=0.3)
    first, second = await welcome.aenqueue(1, 2), await welcome.aenqueue(1, 2)
    same = second.duplicate and first.id == second.id
    await first.aresult(TIMEOUT_S)
    return check(same, f"enqueued twice with one key; both are job {first.id}")


async def handle_batch(stage: DemoStage) -> str:
    drafts = [make_order(number) for number in range(38, 43)]
    ended = await stage.wait_until_ended(
        *(each.id for each in await stage.broker.publish_many(drafts))
    )
    text = f"5 orders in one call: {ended.count(State.COMPLETED)} completed, 1 failed"
    return check(ended.count(State.DEAD) == 1, text)


async def cancel_running(stage: DemoStage) -> str:
    job = await tasks.count.aenqueue(1_000)
    (record,) = await stage.wait_until(lambda each: bool(each.percent), job.id)
    await job.acancel()
    ended = await stage.wait_until_ended(job.id)
    text = f"reported progress {record.note!r}, then stopped on request"
    return check(ended == [State.CANCELLED], text)


async def run_in_process(stage: DemoStage) -> str:
    pid = await (await tasks.get_process_id.aenqueue()).aresult(TIMEOUT_S)
    return check(pid != os.getpid(), f"ran in process {pid}, not in {os.getpid()}")


async def run_schedule(stage: DemoStage) -> str:
    (schedule,) = await stage.broker.admin.schedules()
    ended = await stage.wait_until_ended((await stage.broker.publish(schedule.draft)).id)
    text = f"scheduled {schedule.cron!r} in {schedule.timezone}; ran once on demand"
    return check(ended == [State.COMPLETED], text)


async def run_shell_job(stage: DemoStage) -> str:
    draft = JobText(command="echo hi from $$; exit 0", id="j1").make_draft()
    id = (await stage.broker.publish(draft)).id
    await stage.wait_until_ended(id)
    path = stage.folder / "demo.db.jobs" / str(id) / "stdout.log"
    text = (await asyncio.to_thread(path.read_text)).splitlines()[-1]
    return check(text.startswith("hi"), f"/bin/sh printed {text!r}, saved in {path.name}")


async def run_traffic(stage: DemoStage) -> str:
    ids = [id for n in range(20, 41) for id in await send_traffic(n, tasks.app.apublish)]
    ended = await stage.wait_until_ended(*ids)
    completed = ended.count(State.COMPLETED)
    text = f"{len(ids)} mails, orders and images: {completed} completed, 1 dead letter"
    return check(completed == len(ids) - 1, text)


async def keep_settings(stage: DemoStage) -> str:
    await stage.broker.admin.set_queue("shell", max_attempts=7)
    async with await stores.open(stage.url) as other:
        found = (await Broker(other).admin.queue("shell")).settings.max_attempts
    return check(found == 7, f"max-retries set to {found}, and read from a newly opened store")


async def survive_crash(stage: DemoStage) -> str:
    path = stage.folder / "pid.txt"
    job = await tasks.survive.aenqueue(str(path))
    with start_worker(stage) as first:
        await stage.wait_until(lambda _: path.exists(), job.id)
        first.send_signal(signal.SIGKILL)
        killed_at = await stage.broker.now()
    with start_worker(stage, "--stop-when-empty"):
        deliveries = await job.aresult(TIMEOUT_S)
    waited = ((await job.arecord()).timeline[-1].at - killed_at) / 1_000_000
    text = f"worker killed (lease 1 s); another worker finished the job {waited:.1f} s later"
    return check(deliveries == 2, text)


def start_worker(stage: DemoStage, *words: str) -> "subprocess.Popen[bytes]":
    command = ["worker", "start", f"{tasks.__name__}:app", "--queue", "crash", "--url", stage.url]
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *command, *words], stderr=subprocess.DEVNULL
    )


STEPS: dict[str, DemoStep] = {
    "task": run_task,
    "bulk enqueue": enqueue_many,
    "retries": retry_failures,
    "dead letter": redrive_dead_letter,
    "time limit": time_out,
    "delay": delay_job,
    "priorities": order_by_priority,
    "ordering key": order_by_key,
    "unique job": enqueue_unique,
    "batch handler": handle_batch,
    "progress, cancel": cancel_running,
    "process executor": run_in_process,
    "cron schedule": run_schedule,
    "shell job": run_shell_job,
    "mixed traffic": run_traffic,
    "configuration": keep_settings,
    "worker crash": survive_crash,
}


Publish: TypeAlias = Callable[[Draft], Awaitable[Published]]

CUSTOMERS = 50


async def send_traffic(number: int, publish: Publish) -> list[int]:
    """Sends what customer `number` causes, and returns the ids. Orders go through `publish`."""
    customer = number % CUSTOMERS
    mail = await send_mail.aenqueue(f"customer{customer}@example.org", f"order {number}")
    order = await publish(make_order(number, key=f"customer-{customer}"))
    ids = [mail.id, order.id]
    if number % 5 == 0:
        image = await resize.options(priority=number % 10).aenqueue("cat.png", [64, 128, 256])
        ids.append(image.id)
    return ids


def make_order(number: int, key: str | None = None) -> Draft:
    """Every 40th order has no total and becomes a dead letter."""
    order = Order(number=number, total=0.0 if number % 40 == 0 else 9.5)
    return Draft(queue="orders", body=msgspec.json.encode(order), max_attempts=1, ordering_key=key)
