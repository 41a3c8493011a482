"""Formats tracebacks of failed runs, never with the values of variables."""

import os
import sys
import threading
import traceback
from collections.abc import Iterator
from traceback import StackSummary, TracebackException
from types import FrameType
from typing import Any

from msgspec.structs import replace

from penstock.model import message
from penstock.model.message import Settlement
from penstock.rules.validation import clip_traceback

MAX_FRAMES = 40
MAX_CAUSES = 10
# Bounds the errors shown of one exception group.
MAX_GROUPED = 3
MAX_ERROR_TEXT = 1_000
HEADER = "Traceback (most recent call last):\n"
TIMEOUT_HEADER = "Stack when the timeout expired (most recent call last):\n"
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
OUR_FILES = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# These modules call the user's functions: the frames above them belong to the worker.
CALLING_FILES = frozenset(
    os.path.join(OUR_FILES, "worker", *name.split("/"))
    for name in (
        "handler.py",
        "middleware.py",
        "executors/base.py",
        "executors/batches.py",
        "executors/child.py",
        "executors/threads.py",
    )
)


class FormattedError(Exception):
    """An error whose traceback was formatted where it happened."""

    report: str | None = None


class Tracebacks:
    """Formats an error only once if all messages of a batch share it."""

    def __init__(self) -> None:
        self.last: tuple[BaseException, object, str | None] | None = None

    def attach(self, verdict: Settlement | None, error: BaseException | None) -> Settlement | None:
        """Adds the traceback to the settlement of a failed run."""
        if error is None or not isinstance(
            verdict, message.Nack | message.SettleReject | message.Fail
        ):
            return verdict
        if self.last is None or self.last[:2] != (error, error.__traceback__):
            self.last = error, error.__traceback__, format_traceback(error)
        return replace(verdict, traceback=self.last[2])

    def forget(self) -> None:
        """Drops the last error, which keeps its frames alive."""
        self.last = None


def format_traceback(error: BaseException) -> str | None:
    """Formats the traceback, or returns None for Penstock errors without user frames."""
    if isinstance(error, FormattedError) and error.report is not None:
        return clip_traceback(error.report)
    if is_explained(error):
        return None
    formatted = TracebackException.from_exception(error, limit=-MAX_FRAMES, compact=True)
    return clip_traceback("".join(format_chain(formatted)))


def is_explained(error: BaseException) -> bool:
    if not type(error).__module__.startswith("penstock."):
        return False
    if error.__cause__ or (error.__context__ and not error.__suppress_context__):
        return False
    frames = traceback.walk_tb(error.__traceback__)
    return all(frame.f_code.co_filename.startswith(OUR_FILES) for frame, _ in frames)


def format_chain(formatted: TracebackException) -> Iterator[str]:
    """Yields the exception chain, first cause first, as Python prints it."""
    links: list[tuple[TracebackException, str]] = [(formatted, "")]
    while len(links) < MAX_CAUSES:
        last = links[-1][0]
        if last.__cause__ is not None:
            links.append((last.__cause__, CAUSE))
        elif last.__context__ is not None and not last.__suppress_context__:
            links.append((last.__context__, CONTEXT))
        else:
            break
    for each, word in reversed(links):
        yield from format_one(each)
        yield word


def format_one(formatted: TracebackException) -> Iterator[str]:
    if formatted.stack:
        yield HEADER
        yield from without_worker(formatted.stack).format()
    text = "".join(formatted.format_exception_only()).rstrip("\n")
    yield clip_text(text) + "\n"
    for each in (formatted.exceptions or [])[:MAX_GROUPED]:
        yield "".join(f"  | {line}\n" for line in "".join(format_chain(each)).splitlines())


def clip_text(text: str) -> str:
    return text if len(text) <= MAX_ERROR_TEXT else f"{text[:MAX_ERROR_TEXT]}..."


def without_worker(stack: StackSummary) -> StackSummary:
    """Drops the worker's frames, unless there are no others."""
    calls = [n for n, frame in enumerate(stack, 1) if frame.filename in CALLING_FILES]
    kept = stack[calls[-1] :] if calls else list(stack)
    return StackSummary.from_list(kept or list(stack))


def format_thread(name: str) -> str | None:
    """Formats the current stack of the named thread."""
    for thread in threading.enumerate():
        if thread.name == name and thread.ident is not None:
            frame = sys._current_frames().get(thread.ident)
            return None if frame is None else format_stack(traceback.extract_stack(frame))
    return None


def format_coroutine(coroutine: Any) -> str:
    """Formats the stack of a suspended coroutine."""
    frames: list[tuple[FrameType, int]] = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        coroutine = coroutine.cr_await
    return format_stack(StackSummary.extract(iter(frames)))


def format_stack(stack: StackSummary) -> str:
    last = StackSummary.from_list(list(stack)[-MAX_FRAMES:])
    return clip_traceback(TIMEOUT_HEADER + "".join(without_worker(last).format()))
