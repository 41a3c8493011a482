"""Runs shell jobs: a command under the subreaper, with capped output files."""

import asyncio
import os
import signal
import sys
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from penstock.errors import InvalidInput
from penstock.model.message import Release
from penstock.model.settings import SHELL_TYPE
from penstock.worker.ack_policy import CodecError
from penstock.worker.context import Context
from penstock.worker.executors import subreaper
from penstock.worker.executors.shell_job import ShellJob, read_job
from penstock.worker.handler import Handler

MAX_OUTPUT_BYTES = 10 * 1_048_576
MAX_TAIL_BYTES = 300
INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")
# How often a run checks for cancellation, and how long to read output after its exit.
CANCEL_CHECK_INTERVAL_S, OUTPUT_DRAIN_TIMEOUT_S = 0.5, 1.0


class CommandFailed(Exception):
    """The command did not exit with 0."""


class ShellHandler(Handler):
    """Runs the shell jobs of a queue. `directory` is where their output goes."""

    def __init__(self, queue: str, directory: Path) -> None:
        super().__init__(self.run, queue=queue, type=SHELL_TYPE, executor="shell", name="shell")
        self.directory = directory.absolute()

    async def run(self, context: Context) -> bytes | None:
        try:
            job = read_job(context.delivery.body)
        except InvalidInput as error:
            raise CodecError(str(error)) from None
        folder = self.directory / str(context.id)
        with ExitStack() as files:
            try:
                kept = open_output(job, folder, files)
            except OSError as error:
                raise CommandFailed(f"cannot write its output: {error}") from None
            await ShellRun(job, context, *kept).run_to_end()
        return msgspec.json.encode({"exit_code": 0, "output": str(folder)})


def open_output(job: ShellJob, folder: Path, files: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    """Opens the output files. They may hold secrets, so only the owner can read them."""
    if job.cwd is not None and not os.path.isdir(job.cwd):
        raise CommandFailed(f"working directory {job.cwd!r} does not exist")
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    stdout, stderr = (open_private(folder / f"{name}.log") for name in ("stdout", "stderr"))
    return files.enter_context(stdout), files.enter_context(stderr)


def open_private(path: Path) -> BinaryIO:
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


class ShellRun:
    """One attempt of a job."""

    def __init__(self, job: ShellJob, context: Context, stdout: BinaryIO, stderr: BinaryIO) -> None:
        self.job = job
        self.context = context
        self.stdout = stdout
        self.stderr = stderr
        self.stdin: asyncio.StreamWriter | None = None
        self.stopping = False
        # The last bytes of stderr, which usually name the cause of a failure.
        self.stderr_tail = b""

    async def run_to_end(self) -> None:
        """Runs the command. On cancellation, timeout or a lost lease its process tree is killed."""
        task = asyncio.create_task(self.finish())
        try:
            while not (await asyncio.wait([task], timeout=CANCEL_CHECK_INTERVAL_S))[0]:
                self.context.raise_if_cancelled()
        except BaseException:
            self.stop()
            await wait_until_done(task)
            raise
        task.result()

    def stop(self) -> None:
        """Closes the subreaper's standard input, which makes it kill the process tree."""
        self.stopping = True
        if self.stdin is not None:
            self.stdin.close()

    async def finish(self) -> None:
        """Starts the command and waits for it. Raises unless it exits with 0."""
        status_read, status_write = os.pipe()
        try:
            process = await self.start(status_write)
        except OSError as error:
            os.close(status_read)
            raise CommandFailed(f"cannot start: {error.strerror or error}") from None
        finally:
            os.close(status_write)
        self.stdin = process.stdin
        if self.stopping:
            self.stop()
        assert process.stdout is not None
        assert process.stderr is not None
        keepers = [
            asyncio.create_task(self.write_output(process.stdout, self.stdout)),
            asyncio.create_task(self.write_output(process.stderr, self.stderr)),
        ]
        await process.wait()
        self.stop()
        await asyncio.wait(keepers, timeout=OUTPUT_DRAIN_TIMEOUT_S)
        status = os.read(status_read, 4_096).decode(errors="replace")
        os.close(status_read)
        if not status and process.returncode == -signal.SIGINT:
            self.give_back()
        if status != "exit 0":
            raise CommandFailed(self.describe_status(status.partition("\n")[0]))

    def give_back(self) -> None:
        """Releases the message: Ctrl-C in the worker's terminal hit the subreaper at its start."""
        self.context.settlement, self.context.settled = Release(), True
        raise CommandFailed("interrupted before it started")

    async def start(self, status: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", subreaper.__file__, str(status), *self.job.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(status,),
            cwd=self.job.cwd,
            env=self.make_environment(),
            start_new_session=True,
        )  # fmt: skip

    def make_environment(self) -> dict[str, str]:
        """Returns a few variables of the worker, the job's own, and the job's identity."""
        kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
        own = {
            "PENSTOCK_JOB": str(self.context.id),
            "PENSTOCK_ATTEMPT": str(self.context.attempt),
            "PENSTOCK_FENCE": str(self.context.fence),
        }
        return kept | self.job.env | own

    async def write_output(self, stream: asyncio.StreamReader, file: BinaryIO) -> None:
        """Copies a stream to its file under a header line, up to the size limit."""
        left = MAX_OUTPUT_BYTES
        write(file, self.make_header())
        while chunk := await stream.read(65_536):
            if left > 0:
                write(file, chunk[:left])
                left -= len(chunk)
                if left <= 0:
                    write(file, b"\n--- output truncated at 10 MB ---\n")
            if file is self.stderr:
                self.stderr_tail = (self.stderr_tail + chunk)[-MAX_TAIL_BYTES:]

    def make_header(self) -> bytes:
        command = msgspec.json.encode(self.job.command).decode()
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        run = f"attempt {self.context.attempt}, delivery {self.context.delivery.deliveries}"
        return f"--- {run}, {now}, {command} ---\n".encode()

    def describe_status(self, status: str) -> str:
        """Describes the exit status, with the last line of stderr."""
        word, _, detail = status.partition(" ")
        lines = self.stderr_tail.decode(errors="replace").split("\n")
        said = next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")
        match word:
            case "exit" if detail == "127":
                return f"exit 127, command not found{said}"
            case "exit":
                return f"exit {detail}{said}"
            case "signal":
                return f"killed by {name_of(int(detail))}{said}"
            case "cannot":
                return f"command not found or not runnable: {detail}"
        return "its supervising process was killed, and the command with it"


def write(file: BinaryIO, chunk: bytes) -> None:
    """Writes output. A full disk must not fail the job."""
    with suppress(OSError):
        file.write(chunk)
        file.flush()


async def wait_until_done(task: "asyncio.Task[None]") -> None:
    """Waits for the task, even if cancelled again: the subreaper ends soon."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    task.exception()


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
