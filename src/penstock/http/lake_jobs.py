"""Runs the pipeline and backtests of rules in processes of their own, where Spark is installed."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from penstock.errors import Busy, InvalidState
from penstock.model.message import Moment

PIPELINE, BACKTEST = "pipeline", "backtest"
# The end of what a job printed.
MAX_OUTPUT = 4_000
# A job that hangs would keep all later ones of its kind waiting.
JOB_TIMEOUTS_S = {PIPELINE: 6 * 3_600.0, BACKTEST: 3_600.0}
# From the signal to end until the process is killed.
TERMINATE_WITHIN_S = 10.0


class LakeJob(Struct):
    """A process and how it ended. `result` is the JSON that it printed."""

    kind: str
    started_by: str
    started_at: Moment
    state: Literal["running", "done", "failed"] = "running"
    ended_at: Moment | None = None
    output: str = ""
    result: Raw | None = None


class LakeJobs:
    """The last job of each kind that this process started. One of a kind runs at a time."""

    def __init__(
        self,
        url: str = "",
        lake: str | None = None,
        timeouts: Mapping[str, float] = JOB_TIMEOUTS_S,
    ) -> None:
        self.url = url
        self.timeouts = timeouts
        self.lake = lake if lake is None or "://" in lake else str(Path(lake).absolute())
        self.jobs: dict[str, LakeJob] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.processes: set[asyncio.subprocess.Process] = set()

    def explain_missing(self) -> str:
        """Says what the server lacks to run jobs, or nothing."""
        if self.lake is None:
            return "this server has no lake; start it with --lake"
        if find_spec("pyspark") is None:
            return "Spark is not installed on this server; install penstock[pipeline]"
        return ""

    def run_pipeline(self, by: str) -> LakeJob:
        return self.start(LakeJob(PIPELINE, by, read_clock()), ["pipeline", "run"])

    def run_backtest(
        self,
        rule: dict[str, object],
        since: str,
        scope: str,
        by: str,
        saved: dict[str, object] | None = None,
    ) -> LakeJob:
        """Compares the rule with its saved version, if there is one."""
        words = ["rule", "backtest", "rule.json", "--since", since, "--scope", scope]
        files = {"rule.json": rule}
        if saved is not None:
            files["saved.json"] = saved
            words += ["--against", "saved.json"]
        return self.start(LakeJob(BACKTEST, by, read_clock()), words, files)

    def start(
        self, job: LakeJob, words: list[str], files: Mapping[str, object] = MappingProxyType({})
    ) -> LakeJob:
        if reason := self.explain_missing():
            raise InvalidState(reason)
        last = self.jobs.get(job.kind)
        if last is not None and last.state == "running":
            raise Busy(f"a {job.kind} is running already; wait until it has ended")
        self.jobs[job.kind] = job
        task = asyncio.create_task(self.run(job, words, files))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return job

    async def run(self, job: LakeJob, words: list[str], files: Mapping[str, object]) -> None:
        code, printed, logged = 1, b"", b""
        try:
            with TemporaryDirectory(prefix="penstock-") as folder:
                write_files(folder, files)
                code, printed, logged = await self.execute(words, folder, self.timeouts[job.kind])
        except TimeoutError:
            logged = f"stopped: it ran for more than {self.timeouts[job.kind]:g} s".encode()
        except OSError as error:
            logged = f"the process could not be started: {error.strerror}".encode()
        finally:
            text = (logged + (b"" if code == 0 else printed)).decode(errors="replace")
            job.output = text[-MAX_OUTPUT:].strip()
            job.state = "done" if code == 0 else "failed"
            job.ended_at = read_clock()
            if code == 0 and job.kind == BACKTEST:
                job.result = Raw(printed.strip() or b"null")

    async def execute(
        self, words: list[str], folder: str, timeout: float
    ) -> tuple[int, bytes, bytes]:
        """Returns the exit code and what was printed. Raises TimeoutError."""
        # The URL may hold a password, which a command line would show.
        environment = os.environ | {"PENSTOCK_URL": self.url}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", *words, "--lake", self.lake or "", "--json",
            cwd=folder, env=environment, start_new_session=True,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self.processes.add(process)
        try:
            async with asyncio.timeout(timeout):
                printed, logged = await process.communicate()
        except TimeoutError:
            await stop(process)
            raise
        finally:
            self.processes.discard(process)
        return process.returncode or 0, printed, logged

    def close(self) -> None:
        """Stops what runs. The pipeline may be killed at any time."""
        for process in self.processes:
            process.terminate()


async def stop(process: asyncio.subprocess.Process) -> None:
    """Ends the process and the JVM that it started."""
    process.terminate()
    try:
        async with asyncio.timeout(TERMINATE_WITHIN_S):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def write_files(folder: str, files: Mapping[str, object]) -> None:
    for name, content in files.items():
        Path(folder, name).write_bytes(msgspec.json.encode(content))


def read_clock() -> Moment:
    """Jobs run on this machine, not in the store."""
    return time.time_ns() // 1_000
