"""The processes of a storm over the pipeline: writers with transactions of their own, and a driver.

python -m tests.pipeline.storming writer URL NAME FOLDER SEED
python -m tests.pipeline.storming driver URL FOLDER
"""

import asyncio
import random
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import psycopg
import pymysql

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.pipeline import extract, start_session
from tests.pipeline.scenes import on, read_column
from tests.servers.mariadb import place

QUEUE = "jobs"
# Of the transactions, and how long one stays open, in seconds. SQLite has one writer at a time.
ROLLED_BACK = 0.1
LONGEST = {"sqlite": 0.02}
MAX_BATCH = 20
# Seconds until all that was committed must be final.
WAIT_LIMIT_S = 60.0


def is_stopped(folder: Path) -> bool:
    return (folder / "stop").exists()


def connect(url: str) -> Any:
    """A connection of the application's own; None where there are no transactions."""
    engine = url.partition(":")[0]
    if engine == "sqlite":
        return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
    if engine == "postgresql":
        return psycopg.connect(url.partition("?")[0])
    return pymysql.connect(**place(url)) if engine == "mariadb" else None


class Writer:
    def __init__(self, url: str, name: str, folder: Path, seed: int) -> None:
        self.url, self.name, self.folder = url, name, folder
        self.random = random.Random(seed)
        self.longest = LONGEST.get(url.partition(":")[0], 0.3)
        self.own = connect(url)
        self.count = 0

    def run(self) -> None:
        """What is committed is written down; what is rolled back must never be seen."""
        with asyncio.Runner() as runner, open(self.folder / f"{self.name}.log", "a") as log:
            broker = Broker(runner.run(stores.open(self.url)))
            while not is_stopped(self.folder):
                labels = self.labels()
                if self.transaction(runner, broker, labels):
                    log.writelines(f"{label}\n" for label in labels)
                    log.flush()
            runner.run(broker.store.close())

    def labels(self) -> list[str]:
        first, self.count = self.count, self.count + self.random.randint(1, MAX_BATCH)
        return [f"{self.name}-{number}" for number in range(first, self.count)]

    def transaction(self, runner: asyncio.Runner, broker: Broker, labels: list[str]) -> bool:
        drafts = [Draft(queue=QUEUE, body=label.encode()) for label in labels]
        if self.own is None:
            runner.run(broker.publish_many(drafts))
            Event().wait(self.random.uniform(0, self.longest))
            return True
        entries = [runner.run(broker.admit(draft)) for draft in drafts]
        if isinstance(self.own, sqlite3.Connection):
            self.own.execute("BEGIN IMMEDIATE")
        for draft, entry in zip(drafts, entries, strict=True):
            broker.publish_on(self.own, draft, entry, wake=False)
        Event().wait(self.random.uniform(0, self.longest))
        keep = self.random.random() >= ROLLED_BACK
        end: Callable[[], None] = self.own.commit if keep else self.own.rollback
        end()
        # A turn for the others, where one writes at a time.
        Event().wait(self.random.uniform(0, self.longest))
        return keep


def drive(url: str, folder: Path) -> None:
    """Extracts until it is killed, or told to stop: then until all is final and there."""
    with start_session("local[2]") as spark:
        (folder / "driving").touch()
        while not is_stopped(folder):
            extract(spark, url, str(folder / "lake"), batch=2_000)
        until = monotonic() + WAIT_LIMIT_S
        while missing(url, folder) and monotonic() < until:
            extract(spark, url, str(folder / "lake"))


def missing(url: str, folder: Path) -> int:
    census = on(url, lambda broker: broker.store.census())
    kept = read_column(folder / "lake", "message", "id") if (folder / "lake").exists() else []
    return sum(each.count for each in census if each.place == "message") - len(kept)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["writer", url, name, folder, seed]:
            Writer(url, name, Path(folder), int(seed)).run()
        case ["driver", url, folder]:
            drive(url, Path(folder))
