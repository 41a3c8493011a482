"""huey on SQLite, run by its own consumer."""

import itertools
import threading
import time
from importlib.util import find_spec
from typing import Any

from bench.processes import Start
from bench.workload import BULK, WARM_UP, make_bodies

NAME = "huey"
# Faster than one or two.
THREADS = 4


def is_installed() -> bool:
    return find_spec(NAME) is not None


class Tasks:
    """Runs empty tasks. The first ones are not timed."""

    def __init__(self, url: str, count: int, *, safe: bool) -> None:
        from huey import SqliteHuey

        path = url.removeprefix("sqlite:///")
        self.huey: Any = SqliteHuey(filename=path, results=False, fsync=safe)
        self.task: Any = self.huey.task()(self.run)
        self.count = count
        # Atomic, because several threads count.
        self.numbers = itertools.count(1)
        self.began_at = self.ended_at = 0.0
        self.over = threading.Event()

    def run(self, body: str) -> None:
        number = next(self.numbers)
        if number == WARM_UP:
            self.began_at = time.monotonic()
        elif number == WARM_UP + self.count:
            self.ended_at = time.monotonic()
            self.over.set()


def fill(start: Start, url: str, count: int) -> None:
    tasks, texts = Tasks(url, count, safe=False), make_bodies(BULK)
    start()
    for number in range(count):
        tasks.task(texts[number % BULK])


def drain(start: Start, url: str, count: int) -> float:
    """Returns tasks per second."""
    tasks = Tasks(url, count, safe=True)
    consumer = tasks.huey.create_consumer(workers=THREADS, periodic=False)
    start()
    consumer.start()
    tasks.over.wait()
    consumer.stop()
    return count / (tasks.ended_at - tasks.began_at)
