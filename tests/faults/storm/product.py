"""A worker as users have it: an app with subscribers, tasks and a cron, run as a service."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

from msgspec import Struct

from penstock import Context, Message, Penstock, Reject, Retry
from penstock.app.task import AsyncTask, Task
from penstock.model.queue import Missed
from penstock.worker.options import WorkerOptions
from penstock.worker.process import WorkerProcess
from tests.faults.storm import mariadb, postgres
from tests.faults.storm.part import Part
from tests.faults.storm.recording_store import RecordingConnections
from tests.faults.storm.scene import CRON, KILLERS, Stores

OPTIONS = WorkerOptions(concurrency=6, fetch_batch_size=30, grace=5.0)
LONG = 0.25
# Where a handler has a database in common with us.
BOOKS: dict[Stores, Callable[[str, Context], Awaitable[None]]] = {
    "postgres": postgres.book,
    "mariadb": mariadb.book,
}


class Body(Struct):
    label: str
    filling: str


class Bad(Exception):
    """What a handler raises when it does not work."""


class Product(Part):
    async def play(self) -> None:
        app, *_ = app_of(self)
        worker = await app.worker(options=OPTIONS)
        await WorkerProcess(worker, app.agents(worker.broker)).run()
        await app.aclose()


def app_of(
    part: Part,
) -> tuple[
    Penstock,
    AsyncTask[[str, str], str],
    Task[[str, str], str],
    AsyncTask[[str, str], None],
]:
    """The app, and the tasks that producers enqueue."""
    url = part.scene.way(part.name)
    app = Penstock(url)
    app.connections = RecordingConnections(url, part.recorder)
    subscribe(app, part)

    @app.task(name="job", queue="jobs")
    async def job(context: Context, label: str, filling: str) -> str:
        await behave(part, context, label)
        return label

    @app.task(name="slow", queue="jobs")
    def slow(context: Context, label: str, filling: str) -> str:
        block(part, context, label)
        return label

    @app.task(name="book", queue="jobs")
    async def book(context: Context, label: str, filling: str) -> None:
        await behave(part, context, label)
        await BOOKS[part.scene.store](url, context)

    @app.task(name="tick", queue="jobs", cron=CRON, missed=Missed.ALL)
    async def tick() -> None:
        await asyncio.sleep(0)

    return app, job, slow, book


def subscribe(app: Penstock, part: Part) -> None:
    """Every queue of the scene but the one of the tasks."""

    async def on_loop(message: Message[Body]) -> None:
        await behave(part, message.context, message.body.label)

    def in_thread(message: Message[Body]) -> None:
        block(part, message.context, message.body.label)

    async def in_batch(messages: list[Message[Body]]) -> list[Exception | None]:
        await asyncio.sleep(part.random.uniform(0.0, 0.1))
        return [verdict(part, message.body.label) for message in messages]

    async def beside_killers(message: Message[Body]) -> None:
        await asyncio.sleep(part.random.uniform(0.0, 0.02))
        if message.body.label.endswith("-bomb"):
            part.kill_itself()

    app.subscriber(KILLERS)(beside_killers)
    app.subscriber("plain")(on_loop)
    app.subscriber("patient")(on_loop)
    app.subscriber("counted")(in_thread)
    app.subscriber("mail", batch=8)(in_batch)


async def behave(part: Part, context: Context, label: str) -> None:
    for pause in pauses(part, context):
        await asyncio.sleep(pause)
    if (error := verdict(part, label)) is not None:
        raise error


def block(part: Part, context: Context, label: str) -> None:
    for pause in pauses(part, context):
        threading.Event().wait(pause)
    if (error := verdict(part, label)) is not None:
        raise error


def pauses(part: Part, context: Context) -> Iterator[float]:
    """Most runs are short; some are longer than their lease, which the worker renews."""
    if part.random.random() < 0.9:
        yield part.random.uniform(0.0, 0.05)
        return
    for step in range(part.random.randint(2, 12)):
        context.progress(step, 12)
        context.raise_if_cancelled()
        yield LONG


def verdict(part: Part, label: str) -> Exception | None:
    if label.endswith("-bomb"):
        part.kill_itself()
    dice = part.random.random()
    if label.endswith("-poison") or dice < 0.08:
        return Bad(label)
    if dice < 0.12:
        return Retry(0.2)
    return Reject("the storm said so") if dice < 0.14 else None
