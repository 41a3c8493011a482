"""Runs jobs in fresh processes that start together."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

# Returns when every job of the run has prepared itself.
Start: TypeAlias = Callable[[], object]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
PATIENCE = 300.0


class Job(Generic[Result]):
    """A call that will get its `start` in the process it runs in."""

    def __init__(
        self,
        call: Callable[Concatenate[Start, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> None:
        self.call: Callable[..., Result] = call
        self.args, self.kwargs = args, kwargs

    def run(self, barrier: Barrier) -> Result:
        return self.call(lambda: barrier.wait(PATIENCE), *self.args, **self.kwargs)


def alone(
    call: Callable[Concatenate[Start, Arguments], Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    (result,) = together(Job(call, *args, **kwargs))
    return result


def together(*jobs: Job[Result]) -> list[Result]:
    """The result of each, in order. Raises what a job raised."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(jobs))
    started = []
    for job in jobs:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=report, args=(job, barrier, sender), daemon=True)
        process.start()
        sender.close()
        started.append((process, receiver))
    answers = [receiver.recv() for _, receiver in started]
    for process, _ in started:
        process.join()
    return [opened(answer) for answer in answers]


def report(job: Job[Any], barrier: Barrier, sender: Connection) -> None:
    try:
        answer = job.run(barrier)
    except Exception as error:  # noqa: BLE001 - raised again in the parent
        barrier.abort()
        answer = error
    sender.send(answer)


def opened(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer
