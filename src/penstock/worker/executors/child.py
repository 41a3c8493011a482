"""The child side of the process executor: receives runs, executes them, reports results."""

import asyncio
import importlib
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from inspect import iscoroutinefunction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock.artifacts.upload import Content, check_content
from penstock.errors import InvalidInput, InvalidState, PenstockError
from penstock.model.message import Settlement
from penstock.model.store_types import Completion
from penstock.worker.ack_policy import Retry, format_error, judge
from penstock.worker.context import Context
from penstock.worker.handler import FunctionReference, Handler
from penstock.worker.job_logging import forward_records
from penstock.worker.local_context import NullReporter
from penstock.worker.tracebacks import format_thread, format_traceback

# Requests a stack trace of the current run.
WHERE = "where"


class ChildResult(Struct, frozen=True):
    """The result of a run, judged in the child, where exceptions have their real types."""

    result: bytes | None = None
    error: str | None = None
    settled: bool = False
    verdict: Settlement | None = None
    traceback: str | None = None
    # The handler raised Retry.
    retry: bool = False


class Spooled(Struct, frozen=True):
    """An attached file, at a path from which the worker copies it."""

    name: str
    path: Path


class TimeoutReport(Struct, frozen=True):
    """The stack of a run when its timeout expired."""

    report: str | None


def serve(pipe: Connection, orders: Connection, log_level: int | None) -> None:
    """Runs messages from the pipe until it closes."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Signals are for the worker, which decides when this process ends.
        signal.signal(number, lambda *_: None)
    running: dict[tuple[int, int], Context] = {}
    mutex = threading.Lock()
    reporter = PipeReporter(pipe, mutex, log_level)
    threading.Thread(target=follow_orders, args=(orders, running, reporter), daemon=True).start()
    while True:
        try:
            reference, delivery, queue = pipe.recv()
        except EOFError:
            return
        context = Context(delivery, queue, reporter)
        running[make_lock(context)] = context
        reporter.context = context
        outcome = run_one(reference, context, reporter)
        running.clear()
        with mutex:
            context.over = True
            pipe.send(outcome)


class PipeReporter(NullReporter):
    """Reports to the worker over the pipe."""

    def __init__(self, pipe: Connection, mutex: threading.Lock, log_level: int | None) -> None:
        self.pipe = pipe
        self.mutex = mutex
        self.log_level = log_level
        # The current or last run.
        self.context: Context | None = None

    def note(self, context: Context) -> None:
        with self.mutex:
            self.pipe.send((make_lock(context), context.take_note()))

    async def find_seen(self, queue: str, key: str) -> bool:
        raise InvalidState("context.seen cannot be used in a process; use a coroutine or a thread")

    def complete_on(self, connection: object, item: Completion) -> None:
        raise InvalidInput(
            "complete_in is not supported by the process executor; use the thread or async executor"
        )

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        self.complete_on(connection, item)

    def spool(self, context: Context, name: str, content: Content) -> None:
        """Lets the worker copy the file, and waits for its answer."""
        check_content(name, content)
        if isinstance(content, Path):
            self.hand_over(context, Spooled(name, content.absolute()))
            return
        with tempfile.NamedTemporaryFile(prefix="penstock-") as file:
            file.write(content)
            file.flush()
            self.hand_over(context, Spooled(name, Path(file.name)))

    def send(self, news: logging.LogRecord | TimeoutReport) -> None:
        with self.mutex:
            if self.context is not None and not self.context.over:
                self.pipe.send((make_lock(self.context), news))

    def hand_over(self, context: Context, spooled: Spooled) -> None:
        with self.mutex:
            if context.over:
                raise InvalidState("the run has ended; files can no longer be attached")
            self.pipe.send((make_lock(context), spooled))
            refused: PenstockError | OSError | None = self.pipe.recv()
        if refused is not None:
            raise refused


def make_lock(context: Context) -> tuple[int, int]:
    return context.id, context.fence


def follow_orders(
    orders: Connection, running: dict[tuple[int, int], Context], reporter: PipeReporter
) -> None:
    """Passes cancellations to the run. Kills this process group when the worker is gone."""
    try:
        while True:
            lock, cancelled, lost = orders.recv()
            if (context := running.get(lock)) is None:
                continue
            if cancelled == WHERE:
                reporter.send(TimeoutReport(format_thread(threading.main_thread().name)))
            else:
                context.cancelled, context.lost = cancelled, lost
    except EOFError:
        os.killpg(0, signal.SIGKILL)


def run_one(reference: FunctionReference, context: Context, reporter: PipeReporter) -> ChildResult:
    try:
        handler = find(reference.module, reference.name)
    except BaseException as raised:  # noqa: BLE001 - reported to the worker
        where = f"{reference.module}.{reference.name}"
        text = f"{where} cannot be loaded in a child process: {format_error(raised)}"
        return ChildResult(error=text, traceback=format_traceback(raised))
    forward_records(reporter.log_level, reporter.send)
    if handler.app is not None and reference.url not in (None, handler.app.url):
        # The worker was started with another store than the code names.
        handler.app.use(reference.url)
    try:
        if iscoroutinefunction(handler.function):
            result = asyncio.run(handler.run(context))
        else:
            result = handler.run_in_thread(context)
    except BaseException as raised:  # noqa: BLE001 - reported to the worker
        verdict = judge(handler.rules, context.delivery, raised)
        verdict = context.settlement if context.settled else verdict
        trace, asked = format_traceback(raised), isinstance(raised, Retry)
        return ChildResult(None, format_error(raised), True, verdict, trace, asked)
    return ChildResult(result, None, context.settled, context.settlement)


def find(module: str, name: str) -> Handler:
    """Imports the module and returns the handler of the function."""
    home = importlib.import_module(module)
    target: Any = home
    for part in name.split("."):
        target = getattr(target, part)
    if not hasattr(target, "handler"):
        # The task has another name than its function.
        target = next(each for each in vars(home).values() if is_task_of(each, target))
    made: Callable[[], Handler] = target.handler
    return made()


def is_task_of(task: Any, function: Any) -> bool:
    return hasattr(task, "handler") and getattr(task, "function", None) is function
