"""Shell jobs: what is run, what is kept, what is recorded, and who may ask for it."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import stores
from penstock.agents.shell_output_pruner import BATCH_SIZE, INTERVAL_S, ShellOutputPruner
from penstock.broker.liveness import is_process_running
from penstock.broker.local import Broker
from penstock.errors import Archived, InvalidInput
from penstock.model.message import Draft, Record, State
from penstock.model.queue import Schedule
from penstock.model.settings import SHELL_TYPE
from penstock.worker.executors import shell
from penstock.worker.executors.shell import ShellHandler
from penstock.worker.executors.shell_job import ShellJob, read_job
from penstock.worker.handler import Handler
from penstock.worker.options import WorkerOptions
from penstock.worker.worker import Worker

pytestmark = pytest.mark.anyio
ENDED = (State.COMPLETED, State.DEAD, State.CANCELLED)
POLL_INTERVAL_S, MAX_POLLS = 0.02, 3_000


class Bench:
    """A worker for shell jobs, on a store in memory."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.output = folder / "jobs"

    async def enqueue(self, command: str | list[str], timeout: float = 30, **fields: Any) -> int:
        body = msgspec.json.encode({"command": command, **fields})
        draft = Draft(queue="shell", type=SHELL_TYPE, body=body, max_attempts=1, timeout=timeout)
        return (await self.broker.publish(draft)).id

    async def ended(self, id: int) -> Record:
        for _ in range(MAX_POLLS):
            record = await self.broker.admin.get(id)
            if record.state in ENDED:
                return record
            await asyncio.sleep(POLL_INTERVAL_S)
        raise AssertionError("it never ended")

    async def run(self, command: str | list[str], **fields: Any) -> Record:
        return await self.ended(await self.enqueue(command, **fields))

    def text(self, id: int, stream: str = "stdout") -> str:
        return (self.output / str(id) / f"{stream}.log").read_text()

    def printed(self, id: int, stream: str = "stdout") -> list[str]:
        return self.text(id, stream).splitlines()[1:]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with await stores.open("sqlite://") as store:
        broker = Broker(store)
        await broker.admin.create_queue("shell", preset_name="queuectl")
        bench = Bench(broker, tmp_path)
        handler = ShellHandler("shell", bench.output)
        async with Worker(broker, [handler], WorkerOptions(concurrency=4, grace=0.2, lease=0.6)):
            yield bench


async def test_a_text_is_run_by_a_shell_and_a_list_as_it_is(bench: Bench) -> None:
    first = await bench.run("echo a b | tr ab cd")
    second = await bench.run(["echo", "a b | tr ab cd", "$HOME", ""])
    assert (first.state, bench.printed(1)) == (State.COMPLETED, ["c d"])
    assert (second.state, bench.printed(2)) == (State.COMPLETED, ["a b | tr ab cd $HOME "])


async def test_the_result_says_where_the_output_is(bench: Bench) -> None:
    await bench.run("true")
    result = await bench.broker.store.result(1)
    assert msgspec.json.decode(result or b"") == {
        "exit_code": 0,
        "output": str(bench.output / "1"),
    }


FAILURES: dict[str, tuple[str | list[str], str]] = {
    "an exit code": ("exit 3", "exit 3"),
    "what it said last": ("echo first >&2; echo 'why not' >&2; exit 4", "exit 4: why not"),
    "a command the shell does not find": ("no-such-thing", "exit 127, command not found: "),
    "a command that is not there": (
        ["no-such-thing"],
        "command not found or not runnable: No such",
    ),
    "a file that may not be run": (
        ["/etc/passwd"],
        "command not found or not runnable: Permission",
    ),
    "a signal": ("kill -SEGV $$", "killed by SIGSEGV"),
    "a kill": ("kill -9 $$", "killed by SIGKILL"),
}


@pytest.mark.parametrize(("command", "told"), FAILURES.values(), ids=FAILURES.keys())
async def test_how_a_command_failed_is_recorded(
    bench: Bench, command: str | list[str], told: str
) -> None:
    record = await bench.run(command)
    assert record.state is State.DEAD
    assert (record.error or "").startswith(f"CommandFailed: {told}")


async def test_output_is_kept_by_stream_under_a_line_for_each_attempt(bench: Bench) -> None:
    await bench.run("echo out; echo err >&2; exit $((2 - PENSTOCK_ATTEMPT))")
    await bench.broker.admin.redrive(1)
    await bench.ended(1)
    for stream, word in (("stdout", "out"), ("stderr", "err")):
        lines = bench.text(1, stream).splitlines()
        assert [line for line in lines if not line.startswith("---")] == [word, word]
        header = lines[0].split(", ", 3)
        assert header[:2] == ["--- attempt 1", "delivery 1"]
        assert header[2].endswith("Z")
        assert header[3] == '"echo out; echo err >&2; exit $((2 - PENSTOCK_ATTEMPT))" ---'


async def test_output_past_the_cap_is_cut_and_the_job_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "MAX_OUTPUT_BYTES", 1_000)
    record = await bench.run("head -c 5000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert record.state is State.COMPLETED
    assert bench.printed(1) == ["x" * 1_000, "--- output truncated at 10 MB ---"]
    assert bench.printed(1, "stderr") == ["end"]


async def test_output_that_is_no_text_is_kept_as_it_is(bench: Bench) -> None:
    await bench.run(r"printf '\377\000'; printf '\377' >&2; exit 1")
    assert (bench.output / "1" / "stdout.log").read_bytes().endswith(b"---\n\xff\x00")


async def test_nobody_else_may_look_at_the_output(bench: Bench) -> None:
    await bench.run("true")
    paths = [bench.output, bench.output / "1", bench.output / "1" / "stdout.log"]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o700, 0o700, 0o600]


async def test_the_environment_is_the_jobs_and_little_of_the_workers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    await bench.run(["env"], env={"MINE": "1", "HOME": "/nowhere"})
    given = dict(line.split("=", 1) for line in bench.printed(1))
    assert given.keys() <= {*shell.INHERITED, "MINE", *given.keys() & {"LC_CTYPE"}} | {
        *("PENSTOCK_JOB", "PENSTOCK_ATTEMPT", "PENSTOCK_FENCE"),
    }
    assert (given["MINE"], given["HOME"], given["PENSTOCK_JOB"]) == ("1", "/nowhere", "1")


async def test_the_working_directory_is_the_jobs(bench: Bench) -> None:
    await bench.run("pwd", cwd=str(bench.folder))
    assert bench.printed(1) == [str(bench.folder)]
    missing = await bench.run("pwd", cwd=str(bench.folder / "missing"))
    assert "working directory" in (missing.error or "")


async def test_a_command_has_nothing_to_read_and_dies_of_a_closed_pipe(bench: Bench) -> None:
    record = await bench.run("cat; yes | head -n 1")
    assert (record.state, bench.printed(1)) == (State.COMPLETED, ["y"])
    assert bench.printed(1, "stderr") == []


async def test_a_background_child_does_not_outlive_its_job(bench: Bench) -> None:
    record = await bench.run("sleep 600 & echo $!; setsid sleep 600 & echo $!")
    assert record.state is State.COMPLETED
    pids = [int(line) for line in bench.printed(1)]
    assert (len(pids), [pid for pid in pids if is_process_running(pid)]) == (2, [])


async def test_a_command_that_ignores_sigterm_is_killed_after_its_time(bench: Bench) -> None:
    record = await bench.run("trap '' TERM; while :; do sleep 1; done", timeout=0.3)
    assert record.state is State.DEAD
    assert record.timeline[-1].error is not None
    assert record.timeline[-1].error.startswith("TimedOut")


async def test_a_job_whose_guard_is_interrupted_is_given_back(bench: Bench) -> None:
    """As by Ctrl-C in the terminal of its worker, when it has just been started."""
    again = bench.folder / "again"
    first = f"touch {again}; kill -INT $PPID; exec sleep 600"
    record = await bench.run(f"test -e {again} || {{ {first}; }}")
    assert (record.state, record.attempts, record.deliveries) == (State.COMPLETED, 1, 1)


async def test_a_polite_command_may_clean_up(bench: Bench) -> None:
    command = "trap 'touch cleaned; exit' TERM; while :; do sleep 0.02; done"
    await bench.run(command, timeout=0.5, cwd=str(bench.folder))
    for _ in range(MAX_POLLS):
        if (bench.folder / "cleaned").exists():
            return
        await asyncio.sleep(POLL_INTERVAL_S)
    raise AssertionError("it was not asked")


async def test_a_body_that_is_no_shell_job_is_rejected(bench: Bench) -> None:
    draft = Draft(queue="shell", type=SHELL_TYPE, body=b'{"cmd":1}')
    record = await bench.ended((await bench.broker.publish(draft)).id)
    assert (record.state, record.reason) == (State.DEAD, "rejected")


@pytest.mark.parametrize(
    "body",
    [
        b'{"command":""}',
        b'{"command":[]}',
        b'{"command":[""]}',
        b'{"command":"a\\u0000b"}',
        b'{"command":"x","env":{"LD_PRELOAD":"y"}}',
        b'{"command":"x","env":{"PYTHONPATH":"y"}}',
        b'{"command":"x","env":{"A=B":"y"}}',
        b'{"command":"x","more":1}',
        b"[]",
        b"",
    ],
)
def test_a_bad_job_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_job(body)


def test_a_job_is_read_as_it_was_written() -> None:
    job = ShellJob(["a", "b"], {"C": "d"}, "/tmp")
    assert read_job(msgspec.json.encode(job)) == job


async def test_a_shell_job_enters_only_queues_that_are_for_them(bench: Bench) -> None:
    broker = bench.broker
    draft = Draft(type=SHELL_TYPE, body=b'{"command":"true"}')
    with pytest.raises(InvalidInput, match="does not accept shell jobs"):
        await broker.publish(draft)
    (refused,) = await broker.publish_many([draft])
    assert refused.code == "INVALID_INPUT"
    with pytest.raises(InvalidInput, match="does not accept shell jobs"):
        await broker.admin.schedule(Schedule("nightly", "0 3 * * *", draft))


async def test_a_handler_of_another_kind_does_not_claim_from_a_shell_queue(bench: Bench) -> None:
    handler = Handler(print, queue="shell", type=None)
    with pytest.raises(InvalidInput, match="runs only shell jobs"):
        await Worker(bench.broker, [handler]).start()


class Gone:
    """A store that kept only the even messages."""

    async def get(self, id: int) -> None:
        if id % 2:
            raise Archived(f"message {id}")


async def test_the_output_of_messages_that_left_the_store_is_removed(tmp_path: Path) -> None:
    count = 2 * BATCH_SIZE + 1
    for id in range(count):
        (tmp_path / str(id)).mkdir()
    (tmp_path / "notes").mkdir()
    tidy = ShellOutputPruner(Gone(), tmp_path)
    waits = [await tidy.tick() for _ in range(3)]
    assert waits == [0, 0, INTERVAL_S]
    left = set(os.listdir(tmp_path))
    assert left == {str(id) for id in range(0, count, 2)} | {"notes"}


async def test_tidying_where_nothing_was_ever_written_does_nothing(tmp_path: Path) -> None:
    assert await ShellOutputPruner(Gone(), tmp_path / "jobs").tick() == INTERVAL_S
