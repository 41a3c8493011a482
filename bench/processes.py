"""Runs jobs in fresh processes that start together."""

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

# Returns when every job of the run is ready.
Start: TypeAlias = Callable[[], object]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
RUN_TIMEOUT_S = 300.0


class Job(Generic[Result]):
    """A call to run in its own process, where it receives `start`."""

    def __init__(
        self,
        call: Callable[Concatenate[Start, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> None:
        self.call: Callable[..., Result] = call
        self.args, self.kwargs = args, kwargs

    def run(self, barrier: Barrier) -> Result:
        return self.call(lambda: barrier.wait(RUN_TIMEOUT_S), *self.args, **self.kwargs)


def run_alone(
    call: Callable[Concatenate[Start, Arguments], Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    (result,) = run_together(Job(call, *args, **kwargs))
    return result


class Child(NamedTuple):
    process: BaseProcess
    receiver: Connection
    # Kept open until the child has it.
    barrier: Barrier


def run_together(*jobs: Job[Result]) -> list[Result]:
    """Returns the results in order. Raises the error of a failed job."""
    children = launch(jobs)
    answers = [child.receiver.recv() for child in children]
    for child in children:
        child.process.join()
    return [unwrap_answer(answer) for answer in answers]


def await_survivor(*jobs: Job[Result]) -> tuple[float, Result]:
    """Returns when the first process ended, on the monotonic clock, and the other's result."""
    children = launch(jobs)
    gone = wait([child.process.sentinel for child in children])
    gone_at = time.monotonic()
    (left,) = (child for child in children if child.process.sentinel not in gone)
    return gone_at, unwrap_answer(left.receiver.recv())


def launch(jobs: Sequence[Job[Any]]) -> list[Child]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(jobs))
    children: list[Child] = []
    for job in jobs:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=report, args=(job, barrier, sender), daemon=True)
        process.start()
        sender.close()
        children.append(Child(process, receiver, barrier))
    return children


def report(job: Job[Any], barrier: Barrier, sender: Connection) -> None:
    try:
        answer = job.run(barrier)
    except Exception as error:  # noqa: BLE001 - raised again in the parent
        barrier.abort()
        answer = error
    sender.send(answer)


def unwrap_answer(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


class SideProcess:
    """Runs a module that prints a line when it is ready, and a number at its end."""

    def __init__(self, module: str, *words: str) -> None:
        command = [sys.executable, "-m", module, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def is_running(self) -> bool:
        return self.process.poll() is None

    def end(self) -> float:
        told, _ = self.process.communicate()
        return float(told)

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()
