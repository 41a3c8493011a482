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

SENSELESS = (
    *("SyntaxError", "NameError", "ImportError", "syntax error", "no such", "binding"),
    "error in your SQL syntax",
    *("has an incomplete schema", "does not exist", "could not determine data type"),
)
SUITE = ("tests/conformance",)
# What may notice a change of these files, besides the suite.
OWN_TESTS = {
    "agents/": ("tests/agents",),
    "worker/": ("tests/worker",),
    "stores/postgres/": ("tests/postgres",),
    "stores/mariadb/": ("tests/mariadb",),
    "stores/redis/": ("tests/redis",),
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

    def __init__(self, workshop: Workshop, mutations: Sequence[Mutation]) -> None:
        self.workshop = workshop
        self.lock = threading.Lock()
        self.tried = {(each.hint.partition("::")[0], each.chosen) for each in mutations}
        self.failing: set[str] = set()
        for chosen in {chosen for _, chosen in self.tried}:
            files = sorted(file for file, each in self.tried if each == chosen)
            self.failing |= {failure.test for failure in workshop.failures(files, chosen)}

    def passes(self, test: str, chosen: str) -> bool:
        if (test.partition("::")[0], chosen) in self.tried:
            return test not in self.failing
        with self.lock:
            return self.workshop.first_failure([test], chosen) is None


def attempt(mutations: Sequence[Mutation], jobs: int) -> Iterator[Trial]:
    """One trial each, in their order, `jobs` at a time."""
    with TemporaryDirectory(prefix="penstock-mutation-") as name, ThreadPoolExecutor(jobs) as pool:
        workshops: SimpleQueue[Workshop] = SimpleQueue()
        for number in range(jobs):
            workshops.put(Workshop(Path(name, str(number))))
        control = Control(Workshop(Path(name, "control")), mutations)

        def in_turn(mutation: Mutation) -> Trial:
            workshop = workshops.get()
            try:
                return time_trial(mutation, workshop, control)
            finally:
                workshops.put(workshop)

        try:
            yield from pool.map(in_turn, mutations)
        finally:
            pool.shutdown(cancel_futures=True)


def time_trial(mutation: Mutation, workshop: Workshop, control: Control) -> Trial:
    started = time.monotonic()
    try:
        with workshop.broken(mutation):
            failure = find_failure(mutation, workshop)
        verdict = judge(failure, mutation.chosen, control)
        told = failure or Failure("", "every test passed")
    except NotApplicable as error:
        verdict, told = Verdict.OUTDATED, Failure("", str(error))
    except Stuck as error:
        verdict, told = Verdict.STUCK, Failure("", str(error))
    seconds = round(time.monotonic() - started, 1)
    return Trial(mutation, verdict, told.test, told.reason, seconds)


def find_failure(mutation: Mutation, workshop: Workshop) -> Failure | None:
    """The tests it was meant for first, then all that may notice."""
    own = [tests for path, tests in OWN_TESTS.items() if mutation.file.startswith(path)]
    everything = [*(own[0] if own else ()), *SUITE]
    chosen = mutation.chosen
    return workshop.first_failure([mutation.hint], chosen) or workshop.first_failure(
        everything, chosen
    )


def judge(failure: Failure | None, chosen: str, control: Control) -> Verdict:
    if failure is None:
        return Verdict.SURVIVED
    if failure.collecting or any(sign in failure.reason for sign in SENSELESS):
        return Verdict.SENSELESS
    return Verdict.CAUGHT if control.passes(failure.test, chosen) else Verdict.UNSOUND
