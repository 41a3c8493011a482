"""What the processes did and what the store held in the end."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from .events import (
    ALREADY_SETTLED,
    Answer,
    AnyLine,
    Call,
    Cancel,
    Claim,
    End,
    Fault,
    Fire,
    Invoke,
    Plan,
    Publish,
    Queue,
    Redrive,
    Result,
    Schedule,
    Settle,
    Signal,
    Stored,
)

FOREVER = 2**63
UNANSWERED = Answer("unknown")

AskedT = TypeVar("AskedT", bound=Call)
LineT = TypeVar("LineT", bound=AnyLine)


class Operation(Struct, Generic[AskedT], frozen=True, gc=False):
    """One call. Without an answer it never ends, for it may still happen."""

    process: str
    number: int
    call: AskedT
    answer: Answer
    start: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.process}#{self.number}"

    @property
    def ok(self) -> bool:
        return self.answer.outcome == "ok"

    @property
    def repeated(self) -> bool:
        """The answer tells of an earlier call that had won."""
        return self.answer.code == ALREADY_SETTLED

    @property
    def accepted(self) -> bool:
        """This very call took effect."""
        return self.ok and not self.repeated

    @property
    def told(self) -> bool:
        """The caller knows that this call, or the one it repeats, took effect."""
        return self.ok or self.repeated

    @property
    def possible(self) -> bool:
        """This call, or the earlier one it repeats, took effect or may have."""
        return self.answer.outcome != "refused" or self.repeated


class History(Struct, frozen=True):
    """`end` is absent when the dump is; `flaws` are what could not be read."""

    publishes: list[Operation[Publish]]
    claims: list[Operation[Claim]]
    settles: list[Operation[Settle]]
    cancels: list[Operation[Cancel]]
    signals: list[Operation[Signal]]
    redrives: list[Operation[Redrive]]
    fires: list[Operation[Fire]]
    faults: list[Fault]
    plan: Plan
    queues: dict[str, Queue]
    schedules: dict[str, Schedule]
    stored: list[Stored]
    end: End | None
    flaws: list[str]

    def queue(self, name: str) -> Queue:
        return self.queues.get(name) or Queue(name)


def assemble(lines: Sequence[AnyLine], flaws: Iterable[str] = ()) -> History:
    """The history told by the lines of all processes, in any order between processes."""
    invokes = _only(lines, Invoke)
    results = {(line.process, line.number): line for line in _only(lines, Result)}
    stored = _only(lines, Stored)
    end = _closing(_only(lines, End), stored)
    return History(
        publishes=_operations(invokes, results, Publish),
        claims=_operations(invokes, results, Claim),
        settles=_operations(invokes, results, Settle),
        cancels=_operations(invokes, results, Cancel),
        signals=_operations(invokes, results, Signal),
        redrives=_operations(invokes, results, Redrive),
        fires=_operations(invokes, results, Fire),
        faults=_only(lines, Fault),
        plan=next(iter(_only(lines, Plan)), Plan()),
        queues={line.queue: line for line in _only(lines, Queue)},
        schedules={line.schedule: line for line in _only(lines, Schedule)},
        stored=stored if end else [],
        end=end,
        flaws=[*flaws, *_misfits(lines, invokes, results), *([] if end else ["no whole dump"])],
    )


def _only(lines: Iterable[AnyLine], kind: type[LineT]) -> list[LineT]:
    return [line for line in lines if isinstance(line, kind)]


def _closing(ends: list[End], stored: list[Stored]) -> End | None:
    return ends[0] if len(ends) == 1 and ends[0].messages == len(stored) else None


def _operations(
    invokes: list[Invoke], results: dict[tuple[str, int], Result], kind: type[AskedT]
) -> list[Operation[AskedT]]:
    return [
        _operation(line, line.call, results.get((line.process, line.number)))
        for line in invokes
        if isinstance(line.call, kind)
    ]


def _operation(line: Invoke, call: AskedT, result: Result | None) -> Operation[AskedT]:
    answer = result.answer if result else UNANSWERED
    end = result.at if result and answer.outcome != "unknown" else FOREVER
    return Operation(line.process, line.number, call, answer, line.at, end)


def _misfits(
    lines: Sequence[AnyLine], invokes: list[Invoke], results: dict[tuple[str, int], Result]
) -> list[str]:
    asked = {(line.process, line.number) for line in invokes}
    flaws = [
        f"{process}#{number}: a result without its call"
        for process, number in results
        if (process, number) not in asked
    ]
    if len(asked) != len(invokes):
        flaws.append("a process name was used twice: two calls have one number")
    if len(results) != len(_only(lines, Result)):
        flaws.append("a call has two results")
    return flaws
