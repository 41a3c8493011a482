"""A storm over the pipeline: writers, long transactions, rollbacks, and a driver that is killed.

python -m tests.pipeline.storm sqlite|postgres|mariadb|redis [--kills N] [--seed N]
"""

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

import msgspec

from penstock.broker.local import Broker
from tests.pipeline.scenes import AnyServer, on, read_column
from tests.pipeline.storming import QUEUE, connect
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

ROOT = Path(__file__).parents[2]
WRITERS = 4
KILLS = 20
# The driver is killed after it made so many files at the most, and so many seconds.
FILES, SPARED = 12, 0.5
WAIT_LIMIT_S = 180.0
SERVERS: dict[str, Callable[[], AnyServer]] = {
    "postgres": Postgres,
    "mariadb": MariaDB,
    "redis": Redis,
}
TABLES = {
    "postgresql": "penstock.message",
    "sqlite": "penstock_message",
    "mariadb": "penstock_message",
}


class Outcome(msgspec.Struct):
    seed: int
    kills: int
    committed: int
    lost: int
    doubled: int
    # Rolled back, and in the lake.
    phantoms: int
    # By a reader in the same storm that asks for ids above the last it saw; None on Redis.
    naive_lost: int | None
    batches: int
    seconds: float

    @property
    def calm(self) -> bool:
        return not (self.lost or self.doubled or self.phantoms) and self.committed > 0


@contextmanager
def ground(store: str, folder: Path) -> Iterator[str]:
    if store == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}"
    else:
        with SERVERS[store]() as server, server.database() as url:
            yield url


class Storm:
    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.url, self.folder = url, folder
        self.random = random.Random(seed)
        self.seed = seed
        self.begun = monotonic()

    def process(self, *words: object) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.pipeline.storming", *map(str, words)]
        return subprocess.Popen(command, cwd=ROOT, start_new_session=True)

    def rage(self, kills: int) -> Outcome:
        on(self.url, create)
        naive = Naive(self.url)
        writers = [
            self.process("writer", self.url, f"w{n}", self.folder, self.random.randrange(10**6))
            for n in range(WRITERS)
        ]
        try:
            for _ in range(kills):
                self.kill_one()
        finally:
            (self.folder / "stop").touch()
        assert [each.wait(WAIT_LIMIT_S) for each in writers] == [0] * WRITERS
        # What it reads in a transaction of its own is not final meanwhile on MariaDB.
        seen = naive.stop()
        assert self.process("driver", self.url, self.folder).wait(WAIT_LIMIT_S) == 0
        return self.judge(kills, seen)

    def kill_one(self) -> None:
        """Somewhere in the middle of its work, with the JVM and the tasks."""
        driving = self.folder / "driving"
        driving.unlink(missing_ok=True)
        driver = self.process("driver", self.url, self.folder)
        enough = self.files() + self.random.randrange(FILES)
        self.wait(driver, driving.exists)
        self.wait(driver, lambda: self.files() >= enough)
        Event().wait(self.random.uniform(0, SPARED))
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()

    def wait(self, driver: "subprocess.Popen[bytes]", done: Callable[[], bool]) -> None:
        until = monotonic() + WAIT_LIMIT_S
        while not done():
            assert monotonic() < until, "the driver gets nowhere"
            assert driver.poll() is None, "the driver ended by itself"
            Event().wait(0.01)

    def files(self) -> int:
        """In the lake, also those that no manifest names."""
        return sum(len(names) for _, _, names in os.walk(self.folder / "lake"))

    def judge(self, kills: int, seen: set[int] | None) -> Outcome:
        lake = self.folder / "lake"
        committed = {
            line for path in self.folder.glob("w*.log") for line in path.read_text().split()
        }
        found = Counter(bytes(body).decode() for body in read_column(lake, "message", "body"))
        ids = set(read_column(lake, "message", "id"))
        return Outcome(
            self.seed,
            kills,
            len(committed),
            len(committed - found.keys()),
            sum(count - 1 for count in found.values()),
            len(found.keys() - committed),
            None if seen is None else len(ids - seen),
            len({path.parent for path in (lake / "message").glob("*/*")}),
            round(monotonic() - self.begun, 1),
        )


class Naive:
    """Reads what is above the last id it saw, as one would without a feed."""

    def __init__(self, url: str) -> None:
        self.table = TABLES.get(url.partition(":")[0])
        self.url = url
        self.stopping = Event()
        self.seen: set[int] = set()
        self.thread = Thread(target=self.read, daemon=True)
        if self.table is not None:
            self.thread.start()

    def read(self) -> None:
        own = connect(self.url)
        last = 0
        while True:
            stopping = self.stopping.is_set()
            for id in self.above(own, last):
                self.seen.add(id)
                last = max(last, id)
            if stopping:
                own.close()
                return
            self.stopping.wait(0.01)

    def above(self, own: Any, last: int) -> list[int]:
        cursor = own.cursor()
        cursor.execute(f"SELECT id FROM {self.table} WHERE id > {last} ORDER BY id")
        found = [row[0] for row in cursor.fetchall()]
        own.rollback()
        return found

    def stop(self) -> set[int] | None:
        if self.table is None:
            return None
        self.stopping.set()
        self.thread.join()
        return self.seen


async def create(broker: Broker) -> None:
    await broker.admin.create_queue(QUEUE)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev storm pipeline")
    parser.add_argument("store", choices=["sqlite", *SERVERS])
    parser.add_argument("--kills", type=int, default=KILLS, help="of the driver, with its JVM")
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if asked.seed is None else asked.seed
    with (
        tempfile.TemporaryDirectory(prefix="penstock-storm-") as folder,
        ground(asked.store, Path(folder)) as url,
    ):
        outcome = Storm(url, Path(folder), seed).rage(asked.kills)
    print(msgspec.json.encode(outcome).decode())
    return 0 if outcome.calm else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
