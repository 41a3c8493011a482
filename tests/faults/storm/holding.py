"""Somebody who stops with a transaction of the application's own open."""

import os
import signal
from collections.abc import Callable
from contextlib import closing
from threading import Event
from typing import Any

import psycopg
import pymysql

from penstock import Penstock
from tests.checker import Answer, Publish, Recorder
from tests.faults.storm.bodies import filling
from tests.faults.storm.scene import Scene

# What a connection of the application may raise.
DRIVER_ERRORS = (psycopg.Error, pymysql.MySQLError)
MESSAGES = 3
# One that everybody else uses too.
KEY = "key-0"
MAX_POLLS, POLL_INTERVAL_S = 50, 0.1


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def open_when_up(
    scene: Scene, connect: Callable[[Scene], Any], down: type[BaseException]
) -> "closing[Any]":
    """Once the server is up."""
    for _ in range(MAX_POLLS):
        try:
            return closing(connect(scene))
        except down:
            Event().wait(POLL_INTERVAL_S)
    return closing(connect(scene))


def hold_messages(scene: Scene, name: str, own: Any) -> None:
    """They are published while nobody sees them, and then exist all at once."""
    recorder = Recorder(scene.history, name)
    labels = [f"{name}-{number}" for number in range(MESSAGES)]
    publishes = [Publish(label, "jobs", KEY, batch=name) for label in labels]
    calls = recorder.invoke_many(publishes)
    ids = publish(Penstock(scene.url), own, labels)
    stop()
    own.commit()
    answers = [Answer("ok", id=id) for id in ids]
    recorder.result_many(list(zip(calls, answers, strict=True)))


def publish(app: Penstock, own: object, labels: list[str]) -> list[int]:
    job = app.task(name="job", queue="jobs")(run).options(connection=own, key=KEY)
    try:
        return [job.enqueue(label, filling(label)).id for label in labels]
    finally:
        app.close()


def run(label: str, filling: str) -> str:
    """Never here: the workers have their own."""
    return label
