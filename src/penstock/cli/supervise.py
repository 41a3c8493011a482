"""Workers and servers as child processes: several, or one that restarts when code changes."""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog

log = structlog.get_logger()
# One that is killed sooner than this after its start will not fare better the next time.
TOO_SOON = 1.0
LOOK = 0.5


class Plan(Protocol):
    """What a child process is to do."""

    def words(self) -> list[str]:
        """The command line that asks for it."""


def spawn(plan: Plan) -> int:
    """In a process group of its own: a terminal's Ctrl-C comes once, from here."""
    words = [sys.executable, "-m", "penstock", *plan.words(), "--parent", str(os.getpid())]
    return os.posix_spawn(sys.executable, words, os.environ, setpgroup=0)


class Crew:
    """Whole processes, each with its own connections. One that is killed is replaced."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.plans = plans
        self.started: dict[int, tuple[Plan, float]] = {}
        self.stopping = False
        self.code = 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.forward)
        for plan in self.plans:
            self.start(plan)
        while self.started:
            pid, status = os.wait()
            self.ended(pid, os.waitstatus_to_exitcode(status))
        return self.code

    def start(self, plan: Plan) -> None:
        pid = spawn(plan)
        self.started[pid] = plan, time.monotonic()
        if self.stopping:
            os.kill(pid, signal.SIGTERM)

    def forward(self, number: int, _: object = None) -> None:
        self.stopping = True
        for pid in self.started:
            os.kill(pid, number)

    def ended(self, pid: int, code: int) -> None:
        plan, started_at = self.started.pop(pid)
        lived = time.monotonic() - started_at
        if code == 0 or self.stopping:
            self.code = self.code or told(code)
        elif code > 0 or lived < TOO_SOON:
            # It said why it cannot go on, and that holds for the others too.
            self.code = told(code)
            self.forward(signal.SIGTERM)
        else:
            log.warning("worker_replaced", pid=pid, killed_by=signal.Signals(-code).name)
            self.start(plan)


def told(code: int) -> int:
    """The exit code that says it. A stop that came before the worker was ready to hear is one."""
    if code in (-signal.SIGTERM, -signal.SIGINT):
        return 0
    return code if code >= 0 else 128 - code


def run_reloading(plan: Plan, directory: Path) -> int:
    """For development: the worker is stopped gracefully and started anew."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    while True:
        seen = stamps(directory)
        pid = spawn(plan)
        while not stopping.wait(LOOK) and stamps(directory) == seen:
            pass
        code = end(pid)
        if stopping.is_set():
            return told(code)
        log.info("code_changed")


def end(pid: int) -> int:
    """One that did not start, or stopped by itself, is a zombie until now."""
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def stamps(directory: Path) -> dict[str, float]:
    """When each Python file here was last changed."""
    found: dict[str, float] = {}
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if ours(folder, name)]
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                try:
                    found[path] = os.stat(path).st_mtime
                except FileNotFoundError:
                    continue
    return found


def ours(folder: str, name: str) -> bool:
    """Not hidden, not a cache, not a virtual environment."""
    if name.startswith(".") or name in ("__pycache__", "node_modules"):
        return False
    return not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
