"""The handle of an enqueued job: status, result, cancel, artifacts."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.errors import Archived, InvalidInput, JobCancelled, JobFailed
from penstock.model.message import State

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.artifacts.rules import Artifact
    from penstock.broker.interfaces.broker import BrokerInterface
    from penstock.errors import PenstockError
    from penstock.model.message import Record
    from penstock.worker.codec import Values

R = TypeVar("R")
T = TypeVar("T")
MIN_POLL_INTERVAL_S, MAX_POLL_INTERVAL_S = 0.005, 0.25


class JobOwner(Protocol):
    """The app a job belongs to."""

    scope: str

    async def broker(self) -> BrokerInterface: ...

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


class Job(Generic[R]):
    """A handle of a job. Sync methods block; methods with prefix `a` are awaited."""

    def __init__(
        self,
        app: JobOwner,
        id: int,
        results: Values,
        duplicate: bool = False,
        refused: PenstockError | None = None,
    ) -> None:
        self.app = app
        self.id = id
        self.results = results
        # True if this is an earlier job with the same dedup key.
        self.duplicate = duplicate
        # The error of a refused call of `enqueue_many`. All methods raise it.
        self.refused = refused

    def __repr__(self) -> str:
        return f"Job({self.id})"

    async def arecord(self, id: int | None = None) -> Record:
        """Reads the message, or the one with another id that replaced it."""
        if self.refused is not None:
            raise self.refused
        broker = await self.app.broker()
        return await broker.admin.get(self.id if id is None else id, scope=self.app.scope)

    def record(self) -> Record:
        """Returns the message with its timeline."""
        return self.app.run(self.arecord())

    async def astatus(self) -> State:
        return (await self.arecord()).state

    def status(self) -> State:
        return self.app.run(self.astatus())

    async def acancel(self, *, force: bool = False, tree: bool = False) -> None:
        if self.refused is not None:
            raise self.refused
        admin = (await self.app.broker()).admin
        cancel = admin.cancel_tree if tree else admin.cancel
        await cancel(self.id, force=force, scope=self.app.scope)

    def cancel(self, *, force: bool = False, tree: bool = False) -> None:
        """Cancels the job. A running one is asked to stop, or with `force` ended at once.

        With `tree`, the unfinished jobs that its steps published are cancelled too, and theirs.
        """
        self.app.run(self.acancel(force=force, tree=tree))

    async def aresult(self, timeout: float | None = None) -> R:
        """Waits for the job and returns its result.

        Raises JobFailed if the job ended without one, JobCancelled if it was cancelled, and
        TimeoutError if it has not ended in time.
        """
        import asyncio

        try:
            async with asyncio.timeout(timeout):
                record = await self.wait_for_end()
        except TimeoutError:
            raise TimeoutError(f"job {self.id} did not finish within {timeout} s") from None
        if record.state is not State.COMPLETED:
            raise failure_of(f"job {self.id}", record)
        body = await (await self.app.broker()).read_result(record.message.id)
        return self.read(body)

    def read(self, body: bytes | None) -> R:
        """Decodes the result. A task that returned None has none stored."""
        try:
            result: R = self.results.decode(b"null" if body is None else body)
        except InvalidInput:
            if body is not None:
                raise
            raise Archived(f"the result of job {self.id} has expired") from None
        return result

    def result(self, timeout: float | None = None) -> R:
        return self.app.run(self.aresult(timeout))

    async def aartifacts(self) -> list[Artifact]:
        if self.refused is not None:
            raise self.refused
        return await (await self.app.broker()).artifacts.list_artifacts(
            self.id, scope=self.app.scope
        )

    def artifacts(self) -> list[Artifact]:
        """Lists the files that the run attached, once it has ended."""
        return self.app.run(self.aartifacts())

    async def aartifact(self, name: str) -> bytes:
        return await (await self.app.broker()).artifacts.read(self.id, name, scope=self.app.scope)

    def artifact(self, name: str) -> bytes:
        return self.app.run(self.aartifact(name))

    async def adownload(self, name: str, to: Path) -> None:
        broker = await self.app.broker()
        await broker.artifacts.download(self.id, name, to, scope=self.app.scope)

    def download(self, name: str, to: Path) -> None:
        """Saves the artifact to a file."""
        self.app.run(self.adownload(name, to))

    async def wait_for_end(self) -> Record:
        """Polls until the job has ended or is a dead letter. Follows a moved or edited one."""
        import asyncio

        from penstock.rules.items import find_successor

        wait = MIN_POLL_INTERVAL_S
        id = self.id
        while True:
            record = await self.arecord(id)
            if (successor := find_successor(record)) is not None:
                id = successor
                continue
            if record.state.final or record.state is State.DEAD:
                return record
            await asyncio.sleep(wait)
            wait = min(1.5 * wait, MAX_POLL_INTERVAL_S)


def failure_of(what: str, record: Record) -> JobFailed:
    """Makes the error of a failed job. The traceback of the run is added as a note."""
    kind = JobCancelled if record.state is State.CANCELLED else JobFailed
    error = kind(f"{what} is {record.state}: {record.error or record.reason}")
    if record.traceback is not None:
        error.add_note(record.traceback)
    return error


async def await_many(jobs: Iterable[Job[R]], timeout: float | None = None) -> list[R]:
    """Returns the results in the order of the jobs. Raises for the first without a result."""
    import asyncio

    async with asyncio.timeout(timeout):
        return [await job.aresult() for job in jobs]


def wait_many(jobs: Iterable[Job[R]], timeout: float | None = None) -> list[R]:
    listed = list(jobs)
    return listed[0].app.run(await_many(listed, timeout)) if listed else []
