"""Processes of their own that work on a test's store, told step by step what to do."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import anyio

from tests.sqlite import program

CAP = 30.0


class Child:
    def __init__(self, process: ForkServerProcess, line: Connection) -> None:
        self.process = process
        self.line = line

    async def ask(self, *words: object) -> str:
        """What the child answers to a command of program.py."""
        self.tell(*words)
        return await self.hear()

    def tell(self, *words: object) -> None:
        self.line.send(tuple(map(str, words)))

    async def hear(self) -> str:
        with anyio.fail_after(CAP):
            await anyio.wait_readable(self.line)
        return str(self.line.recv())

    async def stop(self) -> None:
        self.signal(signal.SIGSTOP)
        await self.stopped()

    async def stopped(self) -> None:
        await wait_until(lambda: state(self.pid) == "T")

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    async def kill(self) -> None:
        """No exit handler runs, nothing is flushed."""
        if self.process.is_alive():
            self.signal(signal.SIGKILL)
        await wait_until(lambda: not self.process.is_alive())

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid


@asynccontextmanager
async def children(count: int) -> AsyncIterator[list[Child]]:
    started = [start() for _ in range(count)]
    try:
        yield started
    finally:
        for child in started:
            await child.kill()
            child.line.close()


def start() -> Child:
    """Forked from a server that has imported everything: it begins in a moment."""
    context = get_context("forkserver")
    context.set_forkserver_preload([program.__name__])
    ours, theirs = context.Pipe()
    process = context.Process(target=program.run, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return Child(process, ours)


def state(pid: int) -> str:
    """The kernel's letter: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def wait_until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(CAP):
        while True:
            if holds():
                return
            await anyio.sleep(0.005)
