"""Tries mutations: which test notices each, that passes on the source as it is."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from msgspec import Struct

from tests.mutation.child import Failure
from tests.mutation.mutation import Mutation, NotApplicable
from tests.mutation.workshop import Stuck, Workshop

SENSELESS = ("SyntaxError", "NameError", "ImportError", "syntax error", "no such", "binding")
SUITE = ("tests/conformance",)
# What may notice a change of these files, besides the suite.
OWN_TESTS = {
    "agents/": ("tests/agents",),
    "worker/": ("tests/worker",),
    "stores/group_commit.py": (
        "tests/unit/test_group_commit.py",
        "tests/unit/test_group_commit_store.py",
    ),
}


class Verdict(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    # The line to change is not there any more.
    OUTDATED = "OUTDATED"
    # Code that does not even run says nothing about the tests.
    SENSELESS = "SENSELESS"
    # The test that failed also fails on the source as it is.
    UNSOUND = "UNSOUND"
    STUCK = "STUCK"


class Trial(Struct, frozen=True):
    mutation: Mutation
    verdict: Verdict
    test: str
    reason: str
    seconds: float


class Control:
    """The source as it is. Whatever fails here has noticed nothing."""

    def __init__(self, workshop: Workshop, hints: set[str]) -> None:
        self.workshop = workshop
        self.lock = threading.Lock()
        files = {hint.partition("::")[0] for hint in hints}
        self.failing = {failure.test for failure in workshop.failures(sorted(files))}
        self.files = files

    def passes(self, test: str) -> bool:
        if test.partition("::")[0] in self.files:
            return test not in self.failing
        with self.lock:
            return self.workshop.first_failure([test]) is None


def attempt(mutations: Sequence[Mutation], jobs: int) -> Iterator[Trial]:
    """One trial each, in their order, `jobs` at a time."""
    with TemporaryDirectory(prefix="penstock-mutation-") as name, ThreadPoolExecutor(jobs) as pool:
        workshops: SimpleQueue[Workshop] = SimpleQueue()
        for number in range(jobs):
            workshops.put(Workshop(Path(name, str(number))))
        control = Control(Workshop(Path(name, "control")), {each.hint for each in mutations})

        def in_turn(mutation: Mutation) -> Trial:
            workshop = workshops.get()
            try:
                return timed(mutation, workshop, control)
            finally:
                workshops.put(workshop)

        try:
            yield from pool.map(in_turn, mutations)
        finally:
            pool.shutdown(cancel_futures=True)


def timed(mutation: Mutation, workshop: Workshop, control: Control) -> Trial:
    started = time.monotonic()
    try:
        with workshop.broken(mutation):
            failure = noticed(mutation, workshop)
        verdict, told = judged(failure, control), failure or Failure("", "every test passed")
    except NotApplicable as error:
        verdict, told = Verdict.OUTDATED, Failure("", str(error))
    except Stuck as error:
        verdict, told = Verdict.STUCK, Failure("", str(error))
    seconds = round(time.monotonic() - started, 1)
    return Trial(mutation, verdict, told.test, told.reason, seconds)


def noticed(mutation: Mutation, workshop: Workshop) -> Failure | None:
    """The tests it was meant for first, then all that may notice."""
    own = [tests for path, tests in OWN_TESTS.items() if mutation.file.startswith(path)]
    everything = [*(own[0] if own else ()), *SUITE]
    return workshop.first_failure([mutation.hint]) or workshop.first_failure(everything)


def judged(failure: Failure | None, control: Control) -> Verdict:
    if failure is None:
        return Verdict.SURVIVED
    if failure.collecting or any(sign in failure.reason for sign in SENSELESS):
        return Verdict.SENSELESS
    return Verdict.CAUGHT if control.passes(failure.test) else Verdict.UNSOUND
