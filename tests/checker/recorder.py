"""Appends what one process does to its history file."""

import os
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import msgspec

from .events import Answer, AnyCall, AnyLine, Fault, Invoke, Result


class Recorder:
    """One per process start: a process name is never used twice.

    A line is one write to an appending file, so a killed process loses no line it wrote.
    """

    def __init__(
        self, directory: Path, process: str, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.process = process
        self.clock = clock
        self.numbers = count()
        # The kinds of fault recorded so far.
        self.kinds: set[str] = set()
        self.encoder = msgspec.json.Encoder()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.file = os.open(directory / f"{process}.jsonl", flags, 0o644)

    def invoke(self, call: AnyCall) -> int:
        """Call it right before the call itself; the number belongs to its result."""
        return self.invoke_many([call])[0]

    def invoke_many(self, calls: Sequence[AnyCall]) -> list[int]:
        """The items of one batch, in one write."""
        at = self.clock()
        lines = [Invoke(self.process, next(self.numbers), at, call) for call in calls]
        self.write(lines)
        return [line.number for line in lines]

    def result(self, number: int, answer: Answer) -> None:
        self.result_many([(number, answer)])

    def result_many(self, answers: Sequence[tuple[int, Answer]]) -> None:
        at = self.clock()
        self.write([Result(self.process, number, at, answer) for number, answer in answers])

    def fault(self, kind: str, target: str = "") -> None:
        self.kinds.add(kind)
        self.write([Fault(self.clock(), kind, target)])

    def write(self, lines: Sequence[AnyLine]) -> None:
        """Also for the lines that are no calls: plan, queue, schedule, stored, end."""
        text = self.encoder.encode_lines(lines)
        written = os.write(self.file, text)
        if written != len(text):
            raise OSError(f"history of {self.process!r} is torn: disk full")

    def close(self) -> None:
        os.close(self.file)
