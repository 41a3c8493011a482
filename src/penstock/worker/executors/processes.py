"""The process executor: runs handlers in child processes that can be killed."""

import asyncio
import atexit
import contextlib
import logging
import multiprocessing
import os
import signal
import tempfile
from multiprocessing import util
from typing import Any

from penstock.errors import PenstockError
from penstock.model import message
from penstock.worker.ack_policy import Cancelled, Retry, TimedOut
from penstock.worker.context import Context
from penstock.worker.executors.base import ResultSink
from penstock.worker.executors.child import (
    WHERE,
    ChildResult,
    Spooled,
    TimeoutReport,
    make_lock,
    serve,
)
from penstock.worker.executors.threads import ThreadExecutor
from penstock.worker.handler import Handler
from penstock.worker.job_logging import handle_record, level_to_forward
from penstock.worker.tracebacks import FormattedError

# Children are forked from a server process that has no threads and has imported this module.
server = multiprocessing.get_context("forkserver")
# The server's socket path may have at most 104 bytes on some systems.
MAX_SOCKET_PATH = 70
SHORT_FOLDER = "/tmp"
# How long a child past its timeout may take to report its stack.
ANSWER_S = 2.0


class ProcessDied(Exception):
    """The child process exited during a run."""


class ProcessError(FormattedError):
    """An exception of a handler in a child process, as text."""


class Child:
    """One child process. It imports the code once, and runs one message at a time."""

    def __init__(self) -> None:
        server.set_forkserver_preload([__name__, "penstock.app.app"])
        self.near, far = server.Pipe()
        # When this pipe closes, the child knows that the worker is gone.
        heard, self.orders = server.Pipe(duplex=False)
        given = (far, heard, level_to_forward())
        self.process = server.Process(target=serve, args=given, name="penstock-child")
        self.process.start()
        self.timeout_report: TimeoutReport | None = None
        far.close()
        heard.close()

    def run(self, handler: Handler, context: Context) -> ChildResult:
        """Runs a message and blocks until it ends. Handles reports meanwhile."""
        try:
            self.near.send((handler.reference, context.delivery, context.queue))
            while not isinstance(said := self.near.recv(), ChildResult):
                lock, news = said
                if lock != make_lock(context):
                    continue
                self.handle_report(context, news)
            return said
        except (EOFError, OSError):
            self.process.join(1.0)
            code = self.process.exitcode
            raise ProcessDied(f"its process exited with {code}") from None

    def handle_report(self, context: Context, news: Any) -> None:
        match news:
            case logging.LogRecord():
                handle_record(news)
            case TimeoutReport():
                self.timeout_report = news
            case Spooled():
                self.attach(context, news)
            case percent, note:
                context.progress(percent, note=note)

    def attach(self, context: Context, spooled: "Spooled") -> None:
        """Copies a file of the run, which waits for the answer."""
        try:
            context.attach(spooled.name, spooled.path)
        except (PenstockError, OSError) as error:
            self.near.send(error)
        else:
            self.near.send(None)

    def order(self, context: Context) -> None:
        with contextlib.suppress(OSError):
            self.orders.send((make_lock(context), context.cancelled, context.lost))

    def ask_where(self, context: Context) -> None:
        with contextlib.suppress(OSError):
            self.orders.send((make_lock(context), WHERE, False))

    def kill(self) -> None:
        """Kills the child and the processes it started."""
        if self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(1.0)


class ProcessExecutor(ThreadExecutor):
    """Runs each message in the child process of a thread. Children start on first use."""

    def __init__(self, concurrency: int, sink: ResultSink) -> None:
        super().__init__(concurrency, sink)
        self.children: dict[int, Child] = {}
        self.late: dict[int, Context] = {}

    def start(self) -> None:
        # Runs before the interpreter waits for its children at exit.
        atexit.register(self.kill_all)
        choose_socket_folder()
        super().start()

    def call(self, me: int, handler: Handler, context: Context) -> bytes | None:
        child = self.children.get(me)
        if child is None:
            child = self.children[me] = Child()
        try:
            outcome = child.run(handler, context)
        except ProcessDied:
            self.children.pop(me).kill()
            if self.late.pop(me, None) is context:
                late = TimedOut("run exceeded its timeout; its process was killed")
                late.report = None if child.timeout_report is None else child.timeout_report.report
                raise late from None
            raise
        self.late.pop(me, None)
        if outcome.settled and not context.settled:
            context.settlement, context.settled = outcome.verdict, True
        if outcome.error is not None:
            raise error_of(outcome, outcome.error)
        return outcome.result

    def sweep(self, now: float) -> None:
        for me, (_, context) in self.active.copy().items():
            child = self.children.get(me)
            if child is None:
                continue
            if context.cancelled or context.lost:
                child.order(context)
            if context.until <= now and self.late.get(me) is not context:
                self.late[me] = context
                child.ask_where(context)
            elif context.until <= now and (child.timeout_report or context.until + ANSWER_S <= now):
                child.kill()

    async def stop(self) -> list[Context]:
        cut = await super().stop()
        await asyncio.to_thread(self.kill_all)
        atexit.unregister(self.kill_all)
        return cut

    def kill_all(self) -> None:
        for child in list(self.children.values()):
            child.kill()


def error_of(outcome: ChildResult, text: str) -> Exception:
    if isinstance(outcome.verdict, message.SettleCancelled):
        return Cancelled(text)
    error = Retry(reason=text) if outcome.retry else ProcessError(text)
    error.report = outcome.traceback
    return error


def choose_socket_folder() -> None:
    """Puts the server's socket into the temporary directory, or /tmp if that path is too long."""
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) > MAX_SOCKET_PATH:
        tempfile.tempdir = SHORT_FOLDER
        try:
            util.get_temp_dir()
        finally:
            tempfile.tempdir = usual
