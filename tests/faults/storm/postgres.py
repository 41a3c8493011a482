"""What is particular to the processes of a storm on PostgreSQL: transactions of their own."""

import os
import signal
from contextlib import closing
from threading import Event

import asyncpg
import psycopg

from penstock import Context, Penstock
from penstock.testing.checker import Answer, Publish, Recorder
from tests.faults.storm.bodies import filling
from tests.faults.storm.scene import Scene

MESSAGES = 3
# One that everybody else uses too.
KEY = "key-0"
LOOKS, LOOK = 50, 0.1
DEADLINE = 5.0
EFFECT = "public.effect"


def connection(scene: Scene) -> psycopg.Connection:
    """As an application has one of its own, on the way that nobody cuts."""
    return psycopg.connect(scene.url.partition("?")[0], connect_timeout=5)


async def book(url: str, context: Context) -> None:
    """The effect of a run and the end of its message are one."""
    own = await asyncpg.connect(url.partition("?")[0], timeout=DEADLINE, command_timeout=DEADLINE)
    try:
        async with own.transaction():
            await own.execute(f"INSERT INTO {EFFECT} VALUES ($1, $2)", context.id, context.fence)
            await context.acomplete_in(own)
    finally:
        own.terminate()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def opened(scene: Scene) -> closing[psycopg.Connection]:
    """Once the server is up."""
    for _ in range(LOOKS):
        try:
            return closing(connection(scene))
        except psycopg.OperationalError:
            Event().wait(LOOK)
    return closing(connection(scene))


def hold_snapshot(scene: Scene, name: str) -> None:
    """As a backup does: the server may clear away nothing that this one could still see."""
    with opened(scene) as own:
        own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        own.execute("SELECT count(*) FROM penstock.ready")
        stop()
        own.execute("SELECT count(*) FROM penstock.message")


def hold_rows(scene: Scene, name: str) -> None:
    """Stops in the middle of a write that nobody must ever see."""
    with opened(scene) as own:
        own.execute("DELETE FROM penstock.ready WHERE id % 2 = 0")
        own.execute("DELETE FROM penstock.lease WHERE id % 2 = 0")
        own.execute("DELETE FROM penstock.scheduled WHERE id % 2 = 0")
        stop()
        own.rollback()


def hold_uncommitted(scene: Scene, name: str) -> None:
    """Messages that are published while nobody sees them, and then exist all at once."""
    recorder = Recorder(scene.history, name)
    labels = [f"{name}-{number}" for number in range(MESSAGES)]
    with opened(scene) as own:
        publishes = [Publish(label, "jobs", KEY, batch=name) for label in labels]
        calls = recorder.invoke_many(publishes)
        ids = publish(Penstock(scene.url), own, labels)
        stop()
        own.commit()
        answers = [Answer("ok", id=id) for id in ids]
        recorder.result_many(list(zip(calls, answers, strict=True)))


def publish(app: Penstock, own: psycopg.Connection, labels: list[str]) -> list[int]:
    job = app.task(name="job", queue="jobs")(run).options(connection=own, key=KEY)
    try:
        return [job.enqueue(label, filling(label)).id for label in labels]
    finally:
        app.close()


def run(label: str, filling: str) -> str:
    """Never here: the workers have their own."""
    return label
