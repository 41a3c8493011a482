"""Runs workers and servers as child processes, and restarts them."""

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
# A child that is killed sooner than this is not restarted.
MIN_LIFETIME_S = 1.0
POLL_INTERVAL_S = 0.5


class ChildPlan(Protocol):
    """Options of a child process."""

    def to_command(self) -> list[str]:
        """Build the command line."""


def spawn(plan: ChildPlan) -> int:
    """Start a child in its own process group, so that Ctrl-C reaches it only from here."""
    words = [sys.executable, "-m", "penstock", *plan.to_command(), "--parent", str(os.getpid())]
    return os.posix_spawn(sys.executable, words, os.environ, setpgroup=0)


class Supervisor:
    """Runs child processes and replaces those that are killed."""

    def __init__(self, plans: Sequence[ChildPlan]) -> None:
        self.plans = plans
        self.started: dict[int, tuple[ChildPlan, float]] = {}
        self.stopping = False
        self.code = 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.forward)
        for plan in self.plans:
            self.start(plan)
        while self.started:
            pid, status = os.wait()
            self.handle_exit(pid, os.waitstatus_to_exitcode(status))
        return self.code

    def start(self, plan: ChildPlan) -> None:
        pid = spawn(plan)
        self.started[pid] = plan, time.monotonic()
        if self.stopping:
            os.kill(pid, signal.SIGTERM)

    def forward(self, number: int, _: object = None) -> None:
        self.stopping = True
        for pid in self.started:
            os.kill(pid, number)

    def handle_exit(self, pid: int, code: int) -> None:
        plan, started_at = self.started.pop(pid)
        lived = time.monotonic() - started_at
        if code == 0 or self.stopping:
            self.code = self.code or to_exit_code(code)
        elif code > 0 or lived < MIN_LIFETIME_S:
            # The child reported an error that concerns the others too.
            self.code = to_exit_code(code)
            self.forward(signal.SIGTERM)
        else:
            log.warning("worker_replaced", pid=pid, killed_by=signal.Signals(-code).name)
            self.start(plan)


def to_exit_code(code: int) -> int:
    """Convert a child's status. A child stopped before it handles signals ended normally."""
    if code in (-signal.SIGTERM, -signal.SIGINT):
        return 0
    return code if code >= 0 else 128 - code


def run_reloading(plan: ChildPlan, directory: Path) -> int:
    """Restart the worker when Python files change, for development."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    while True:
        seen = read_modification_times(directory)
        pid = spawn(plan)
        while not stopping.wait(POLL_INTERVAL_S) and read_modification_times(directory) == seen:
            pass
        code = stop(pid)
        if stopping.is_set():
            return to_exit_code(code)
        log.info("code_changed")


def stop(pid: int) -> int:
    """Stop the child and reap it. It may have exited already."""
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def read_modification_times(directory: Path) -> dict[str, float]:
    """Read when each Python file was last modified."""
    found: dict[str, float] = {}
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if is_watched(folder, name)]
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                try:
                    found[path] = os.stat(path).st_mtime
                except FileNotFoundError:
                    continue
    return found


def is_watched(folder: str, name: str) -> bool:
    """Skip hidden folders, caches and virtual environments."""
    if name.startswith(".") or name in ("__pycache__", "node_modules"):
        return False
    return not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
