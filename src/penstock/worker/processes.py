"""Handlers in processes of their own: what they break, or how long they take, hurts nobody else."""

import asyncio
import atexit
import contextlib
import importlib
import logging
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from inspect import iscoroutinefunction
from multiprocessing import util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock import message
from penstock.artifacts.upload import Content, check_content
from penstock.errors import InvalidInput, InvalidState, PenstockError
from penstock.message import Settlement
from penstock.ticket import Completion
from penstock.worker.child_logging import forward_records, handle_record, level_to_forward
from penstock.worker.context import Context, NullReporter
from penstock.worker.handler import ExecutorSlot, Handler
from penstock.worker.lanes import ResultSink
from penstock.worker.policy import Cancelled, Retry, TimedOut, format_error, judge
from penstock.worker.threads import ThreadExecutor
from penstock.worker.tracebacks import Reported, format_thread, format_traceback

# Children are copies of a process that has no threads and has imported this module.
server = multiprocessing.get_context("forkserver")
# That process is reached by a socket, and the address of one has room for 104 bytes.
MAX_SOCKET_PATH = 70
SHORT_FOLDER = "/tmp"
# A child whose time is over is asked where it is, and has so long to answer.
WHERE = "where"
ANSWER_S = 2.0


class ProcessDied(Exception):
    """The process of a run ended under it."""


class ProcessError(Reported):
    """What a handler raised in its process, as text."""


class ChildResult(Struct, frozen=True):
    """How a run ended in its process, judged there: only there are its errors what they were."""

    result: bytes | None = None
    error: str | None = None
    settled: bool = False
    verdict: Settlement | None = None
    traceback: str | None = None
    # The handler asked for it, by Retry.
    retry: bool = False


class Spooled(Struct, frozen=True):
    """A file that a run attaches, where its worker can copy it."""

    name: str
    path: Path


class Stood(Struct, frozen=True):
    """Where a run was when its time was over."""

    report: str | None


class Child:
    """One process; it imports the code once and then runs one message at a time."""

    def __init__(self) -> None:
        server.set_forkserver_preload([__name__, "penstock.app"])
        self.near, far = server.Pipe()
        # Its end tells the child that the worker is gone.
        heard, self.orders = server.Pipe(duplex=False)
        given = (far, heard, level_to_forward())
        self.process = server.Process(target=serve, args=given, name="penstock-child")
        self.process.start()
        self.stood: Stood | None = None
        far.close()
        heard.close()

    def run(self, handler: Handler, context: Context) -> ChildResult:
        """Blocks until it is done. Notes of progress come before the end."""
        try:
            self.near.send((handler.place, context.delivery, context.queue))
            while not isinstance(said := self.near.recv(), ChildResult):
                lock, news = said
                if lock != make_lock(context):
                    continue
                self.hear(context, news)
            return said
        except (EOFError, OSError):
            self.process.join(1.0)
            code = self.process.exitcode
            raise ProcessDied(f"its process ended with {code}") from None

    def hear(self, context: Context, news: Any) -> None:
        match news:
            case logging.LogRecord():
                handle_record(news)
            case Stood():
                self.stood = news
            case Spooled():
                self.attach(context, news)
            case percent, note:
                context.progress(percent, note=note)

    def attach(self, context: Context, spooled: "Spooled") -> None:
        """Its run waits for the answer."""
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
        """With whatever it started."""
        if self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(1.0)


class ProcessExecutor(ThreadExecutor):
    """Each thread has a process for its runs, started when it first needs one."""

    def __init__(self, concurrency: int, ends: ResultSink) -> None:
        super().__init__(concurrency, ends)
        self.children: dict[int, Child] = {}
        self.late: dict[int, Context] = {}

    def start(self) -> None:
        # Before the interpreter waits for them at its exit.
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
                late = TimedOut("longer than its timeout; its process was killed")
                late.report = None if child.stood is None else child.stood.report
                raise late from None
            raise
        self.late.pop(me, None)
        if outcome.settled and not context.settled:
            context.settlement, context.settled = outcome.verdict, True
        if outcome.error is not None:
            raise error_of(outcome, outcome.error)
        return outcome.result

    def sweep(self, now: float) -> None:
        for me, (_, context) in self.hands.copy().items():
            child = self.children.get(me)
            if child is None:
                continue
            if context.cancelled or context.lost:
                child.order(context)
            if context.until <= now and self.late.get(me) is not context:
                self.late[me] = context
                child.ask_where(context)
            elif context.until <= now and (child.stood or context.until + ANSWER_S <= now):
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
    """Where the first process puts its socket: beside other temporary files, if it fits there."""
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) > MAX_SOCKET_PATH:
        tempfile.tempdir = SHORT_FOLDER
        try:
            util.get_temp_dir()
        finally:
            tempfile.tempdir = usual


def serve(pipe: Connection, orders: Connection, log_level: int | None) -> None:
    """The child's whole life."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT):
        # The worker was asked to stop, and says when this process is to go.
        signal.signal(number, lambda *_: None)
    running: dict[tuple[int, int], Context] = {}
    mutex = threading.Lock()
    desk = PipeReporter(pipe, mutex, log_level)
    threading.Thread(target=follow_orders, args=(orders, running, desk), daemon=True).start()
    while True:
        try:
            place, delivery, queue = pipe.recv()
        except EOFError:
            return
        context = Context(delivery, queue, desk)
        running[make_lock(context)] = context
        desk.context = context
        outcome = run_one(place, context, desk)
        running.clear()
        with mutex:
            context.over = True
            pipe.send(outcome)


class PipeReporter(NullReporter):
    """The worker, at the other end of the pipe."""

    def __init__(self, pipe: Connection, mutex: threading.Lock, log_level: int | None) -> None:
        self.pipe = pipe
        self.mutex = mutex
        self.log_level = log_level
        # What is run now, or was last.
        self.context: Context | None = None

    def note(self, context: Context) -> None:
        with self.mutex:
            self.pipe.send((make_lock(context), context.take_note()))

    def complete_on(self, connection: object, item: Completion) -> None:
        raise InvalidInput("complete_in is not for the process executor: use threads or async")

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        self.complete_on(connection, item)

    def spool(self, context: Context, name: str, content: Content) -> None:
        """The worker copies it, and says what it thinks of it."""
        check_content(name, content)
        if isinstance(content, Path):
            self.hand_over(context, Spooled(name, content.absolute()))
            return
        with tempfile.NamedTemporaryFile(prefix="penstock-") as file:
            file.write(content)
            file.flush()
            self.hand_over(context, Spooled(name, Path(file.name)))

    def send(self, news: logging.LogRecord | Stood) -> None:
        with self.mutex:
            if self.context is not None and not self.context.over:
                self.pipe.send((make_lock(self.context), news))

    def hand_over(self, context: Context, spooled: Spooled) -> None:
        with self.mutex:
            if context.over:
                raise InvalidState("the run has ended: nothing can be attached any more")
            self.pipe.send((make_lock(context), spooled))
            refused: PenstockError | OSError | None = self.pipe.recv()
        if refused is not None:
            raise refused


def make_lock(context: Context) -> tuple[int, int]:
    return context.id, context.fence


def follow_orders(
    orders: Connection, running: dict[tuple[int, int], Context], desk: PipeReporter
) -> None:
    """Tells the run what became of its message; ends this process with the worker."""
    try:
        while True:
            lock, cancelled, lost = orders.recv()
            if (context := running.get(lock)) is None:
                continue
            if cancelled == WHERE:
                desk.send(Stood(format_thread(threading.main_thread().name)))
            else:
                context.cancelled, context.lost = cancelled, lost
    except EOFError:
        os.killpg(0, signal.SIGKILL)


def run_one(place: ExecutorSlot, context: Context, desk: PipeReporter) -> ChildResult:
    try:
        handler = find(place.module, place.name)
    except BaseException as raised:  # noqa: BLE001 - told to the worker
        where = f"{place.module}.{place.name}"
        text = f"{where} is not found in a process: {format_error(raised)}"
        return ChildResult(error=text, traceback=format_traceback(raised))
    forward_records(desk.log_level, desk.send)
    if handler.app is not None and place.url not in (None, handler.app.url):
        # The worker was told another one than the code says.
        handler.app.use(place.url)
    try:
        if iscoroutinefunction(handler.function):
            result = asyncio.run(handler.run(context))
        else:
            result = handler.run_in_thread(context)
    except BaseException as raised:  # noqa: BLE001 - told to the worker
        verdict = judge(handler.rules, context.delivery, raised)
        verdict = context.settlement if context.settled else verdict
        trace, asked = format_traceback(raised), isinstance(raised, Retry)
        return ChildResult(None, format_error(raised), True, verdict, trace, asked)
    return ChildResult(result, None, context.settled, context.settlement)


def find(module: str, name: str) -> Handler:
    """The handler made of that function."""
    home = importlib.import_module(module)
    target: Any = home
    for part in name.split("."):
        target = getattr(target, part)
    if not hasattr(target, "handler"):
        # The task is known by another name than its function.
        target = next(each for each in vars(home).values() if is_task_of(each, target))
    made: Callable[[], Handler] = target.handler
    return made()


def is_task_of(task: Any, function: Any) -> bool:
    return hasattr(task, "handler") and getattr(task, "function", None) is function
