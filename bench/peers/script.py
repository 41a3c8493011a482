"""Shared code of all peer scripts.

Their environments have only the peer, psycopg and the standard library, and no Penstock.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any, TypeAlias

import psycopg

from bench.workload import WARM_UP

POLL = 0.02
Left: TypeAlias = Callable[[str], int]


class Drain:
    """Counts the runs of an empty handler. The first ones are not timed.

    Ends when `left`, the number of unsettled messages, is 0.
    """

    def __init__(self, url: str, count: int, left: Left) -> None:
        self.url, self.count, self.left = url, count, left
        self.done = 0
        self.began_at = self.ended_at = 0.0
        self.all_run = threading.Event()

    def run(self) -> None:
        self.done += 1
        if self.done == WARM_UP:
            self.began_at = time.monotonic()
        elif self.done == WARM_UP + self.count:
            self.all_run.set()

    def then(self, stop: Callable[[], object]) -> None:
        """Calls `stop` from another thread when everything is settled."""
        threading.Thread(target=self.watch, args=(stop,), daemon=True).start()

    def then_set(self, stopping: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        self.then(lambda: loop.call_soon_threadsafe(stopping.set))

    def watch(self, stop: Callable[[], object]) -> None:
        self.all_run.wait()
        while self.left(self.url):
            threading.Event().wait(POLL)
        self.ended_at = time.monotonic()
        stop()

    @property
    def seconds(self) -> float:
        return self.ended_at - self.began_at


class Fill:
    """Times only the calls that publish."""

    def __enter__(self) -> None:
        self.began_at = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self.began_at


def main(
    package: str,
    left: str | Left,
    fill: Callable[[str, int, Fill], Coroutine[Any, Any, None] | None],
    drain: Callable[[Drain], Coroutine[Any, Any, None] | None],
) -> None:
    """Runs `fill URL COUNT` or `drain URL COUNT`, and prints one line of JSON."""
    step, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    counted = count_by_statement(left) if isinstance(left, str) else left
    timer = Fill() if step == "fill" else Drain(url, count, counted)
    if isinstance(timer, Fill):
        finish(fill(url, count + WARM_UP, timer))
        count += WARM_UP
    else:
        finish(drain(timer))
    line = {
        "package": package,
        "version": version(package),
        "step": step,
        "messages": count,
        "seconds": timer.seconds,
        "rate": count / timer.seconds,
    }
    print(json.dumps(line), flush=True)


def count_by_statement(statement: str) -> Left:
    def left(url: str) -> int:
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(statement).fetchone()
            return int(row[0]) if row else 0

    return left


def finish(work: Coroutine[Any, Any, None] | None) -> None:
    if work is None:
        return
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)
