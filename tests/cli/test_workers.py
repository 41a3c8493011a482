"""Workers as processes: how they start, stop, crash, come back, and what they leave behind."""

import json
import os
import signal
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.terminal import Terminal, alive, until

APP = """
import os
from penstock import Penstock
app = Penstock()

@app.task
def pid() -> int:
    return os.getpid()
"""
# Its shell, a child that leaves the group, an orphan that does too, and one in the foreground.
FAMILY = """
echo $$ >> pids
setsid sh -c 'echo $$ >> pids; exec sleep 600' &
(setsid sh -c 'echo $$ >> pids; exec sleep 600' &)
sh -c 'echo $$ >> pids; exec sleep 600'
"""
UNTIL_GO = "touch begun; until test -e go; do sleep 0.05; done"


def enqueue(terminal: Terminal, id: str, command: str, **fields: object) -> None:
    terminal.call("enqueue", json.dumps({"id": id, "command": command, **fields}))


def family(terminal: Terminal) -> list[int]:
    """The four processes of the job, once they are all there."""

    def written() -> list[int]:
        path = terminal.folder / "pids"
        pids = [int(word) for word in path.read_text().split()] if path.exists() else []
        return pids if len(pids) == 4 else []

    pids: list[int] = until(written)
    return pids


def all_gone(pids: list[int]) -> bool:
    return not any(map(alive, pids))


def test_a_worker_killed_with_9_takes_its_whole_tree_with_it(terminal: Terminal) -> None:
    enqueue(terminal, "tree", FAMILY)
    with terminal.start("worker", "start") as worker:
        pids = family(terminal)
        worker.send_signal(signal.SIGKILL)
        until(lambda: all_gone(pids))


def test_a_job_past_its_time_is_ended_with_its_whole_tree(terminal: Terminal) -> None:
    enqueue(terminal, "tree", FAMILY, timeout_seconds=2, max_retries=1)
    terminal.run("worker", "start", "--stop-when-empty")
    until(lambda: all_gone(family(terminal)))
    shown = terminal.call("show", "tree", "--json").json
    assert shown["state"] == "dead"
    assert shown["timeline"][0]["error"].startswith("TimedOut: ")


def test_a_cancelled_job_is_ended_with_its_whole_tree(terminal: Terminal) -> None:
    enqueue(terminal, "tree", FAMILY)
    with terminal.start("worker", "start", "--lease", 1):
        pids = family(terminal)
        assert terminal.call("cancel", "tree").out == "1 cancellation requested\n"
        until(lambda: terminal.state("tree") == "cancelled")
        until(lambda: all_gone(pids))


def test_a_job_cut_off_by_the_grace_time_goes_back_without_an_attempt(terminal: Terminal) -> None:
    enqueue(terminal, "tree", FAMILY)
    with terminal.start("worker", "start", "--grace", 0.2) as worker:
        pids = family(terminal)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        assert all_gone(pids)
    shown = terminal.call("show", "tree", "--json").json
    assert (shown["state"], shown["attempts"], shown["deliveries"]) == ("ready", 0, 0)
    assert terminal.call("worker", "list").out == "no workers\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_jobs_finish(terminal: Terminal, number: signal.Signals) -> None:
    enqueue(terminal, "slow", UNTIL_GO)
    with terminal.start("worker", "start") as worker:
        until((terminal.folder / "begun").exists)
        worker.send_signal(number)
        terminal.write("go", "")
        _, told = worker.communicate(timeout=60)
        assert worker.returncode == 0
    assert terminal.state("slow") == "completed"
    started, *_, stopped = told.splitlines()
    assert "worker started: " in started
    assert f"worker stopping: reason={number.name}" in told
    assert "run completed: id=1 handler=shell" in told
    assert "worker stopped: completed=1 other=0 lost=0" in stopped


def test_a_second_signal_is_a_crash_and_another_worker_takes_over(terminal: Terminal) -> None:
    enqueue(terminal, "slow", UNTIL_GO)
    with terminal.start("worker", "start", "--lease", 1) as worker:
        until((terminal.folder / "begun").exists)
        worker.send_signal(signal.SIGTERM)
        assert worker.stderr is not None
        assert any("worker stopping" in line for line in worker.stderr)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 128 + signal.SIGTERM
    terminal.write("go", "")
    terminal.run("worker", "start", "--lease", 1, "--stop-when-empty")
    timeline = terminal.call("show", "slow", "--json").json["timeline"]
    assert [row["verb"] for row in timeline] == ["reclaim", "complete"]


def test_a_worker_that_crashed_is_gone_and_the_next_one_buries_it(terminal: Terminal) -> None:
    terminal.call("migrate")
    with terminal.start("worker", "start") as worker:
        until(lambda: terminal.call("status", "--json").json["workers"] == 1)
        worker.kill()
        worker.wait()
    assert terminal.call("worker", "list", "--json").json["state"] == "gone"
    assert terminal.call("status", "--json").json["workers"] == 0
    terminal.run("worker", "start", "--stop-when-empty")
    assert terminal.call("worker", "list").out == "no workers\n"


def test_one_of_two_workers_is_stopped_by_the_beginning_of_its_id(terminal: Terminal) -> None:
    terminal.call("migrate")
    with terminal.start("worker", "start") as one, terminal.start("worker", "start") as other:

        def both() -> list[dict[str, object]]:
            rows = terminal.call("worker", "list", "--json").lines
            return rows if len(rows) == 2 else []

        rows = {row["pid"]: row for row in until(both)}
        id = str(rows[one.pid]["id"])
        assert terminal.call("worker", "stop", id[:12]).out == "1 worker stopped\n"
        assert one.wait(60) == 0
        assert other.poll() is None
        (left,) = terminal.call("worker", "list").rows()
        assert left[0] == str(rows[other.pid]["id"])[:12]
        assert terminal.call("worker", "stop", "--json").json == {
            "stopped": [rows[other.pid]["id"]]
        }


def test_a_worker_that_is_not_there_cannot_be_stopped(terminal: Terminal) -> None:
    terminal.call("migrate")
    assert terminal.call("worker", "stop").out == "0 workers stopped\n"
    said = terminal.call("worker", "stop", "f00", code=1)
    assert "no worker whose id starts with 'f00'; run `penstock worker list`" in said.err


def test_a_stop_that_takes_too_long_says_who_still_runs(terminal: Terminal) -> None:
    enqueue(terminal, "slow", UNTIL_GO)
    with terminal.start("worker", "start") as worker:
        until((terminal.folder / "begun").exists)
        said = terminal.call("worker", "stop", "--timeout", 0.1, code=1)
        assert "workers still running jobs after " in said.err
        assert said.err.endswith("; run `penstock list --state claimed` to see the jobs\n")
        terminal.write("go", "")
        assert worker.wait(60) == 0


def test_every_process_works_and_a_stop_reaches_them_all(terminal: Terminal) -> None:
    terminal.call("migrate")
    with terminal.start("worker", "start", "--processes", 2) as parent:
        until(lambda: terminal.call("status", "--json").json["workers"] == 2)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0
    assert terminal.call("worker", "list").out == "no workers\n"


def test_a_stop_counts_those_that_it_stopped(terminal: Terminal) -> None:
    terminal.call("migrate")
    with terminal.start("worker", "start", "--processes", 2):
        until(lambda: terminal.call("status", "--json").json["workers"] == 2)
        assert terminal.call("worker", "stop").out == "2 workers stopped\n"


def test_a_signal_to_a_worker_that_was_asked_to_stop_is_no_crash(terminal: Terminal) -> None:
    enqueue(terminal, "slow", UNTIL_GO)
    with terminal.start("worker", "start") as worker:
        until((terminal.folder / "begun").exists)
        terminal.call("worker", "stop", "--no-wait")
        assert worker.stderr is not None
        assert any("worker stopping: reason='stop requested'" in line for line in worker.stderr)
        worker.send_signal(signal.SIGTERM)
        terminal.write("go", "")
        assert worker.wait(60) == 0
    assert terminal.state("slow") == "completed"


def test_a_process_that_is_killed_is_replaced(terminal: Terminal) -> None:
    terminal.call("migrate")
    with terminal.start("worker", "start", "--processes", 2) as parent:

        def grown_up() -> list[int]:
            """Two workers that have been there for a while."""
            rows = terminal.call("worker", "list", "--json").lines
            then = datetime.now(UTC) - timedelta(seconds=2)
            old = [row for row in rows if datetime.fromisoformat(row["started_at"]) < then]
            return [row["pid"] for row in old] if len(old) == 2 else []

        killed, other = until(grown_up)
        os.kill(killed, signal.SIGKILL)

        def replaced() -> bool:
            rows = terminal.call("worker", "list", "--json").lines
            pids = {row["pid"] for row in rows if row["state"] == "running"}
            return len(pids) == 2 and other in pids and killed not in pids

        until(replaced)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0


def test_processes_stop_when_their_parent_is_killed(terminal: Terminal) -> None:
    terminal.call("migrate")
    with terminal.start("worker", "start", "--processes", 2) as parent:
        until(lambda: terminal.call("status", "--json").json["workers"] == 2)
        parent.kill()
        until(lambda: terminal.call("worker", "list").out == "no workers\n")


def test_processes_that_cannot_start_end_with_their_error(terminal: Terminal) -> None:
    said = terminal.run("worker", "start", "nowhere:app", "--processes", 2, code=1)
    assert "no module named 'nowhere'" in said.err


def test_a_worker_restarts_when_its_code_changes(terminal: Terminal) -> None:
    terminal.call("migrate")
    terminal.write("shop.py", APP)
    with terminal.start("worker", "start", "shop:app", "--reload") as parent:
        until(lambda: terminal.call("status", "--json").json["workers"] == 1)
        before = terminal.call("worker", "list", "--json").json["pid"]
        terminal.write("shop.py", APP + "\n")

        def another() -> bool:
            rows = terminal.call("worker", "list", "--json").lines
            return [row for row in rows if row["pid"] != before] == rows != []

        until(another)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0
    assert terminal.call("worker", "list").out == "no workers\n"


def test_reload_is_for_one_process(terminal: Terminal) -> None:
    said = terminal.run("worker", "start", "--reload", "--processes", 2, code=2)
    assert "--reload cannot be combined with --processes" in said.err


def test_log_lines_for_programs_are_json_on_stderr(terminal: Terminal) -> None:
    enqueue(terminal, "bad", "echo oops >&2; exit 3", max_retries=1)
    said = terminal.run("worker", "start", "--log", "json", "--stop-when-empty")
    assert said.out == ""
    lines = [json.loads(line) for line in said.err.splitlines()]
    # An agent may see the dead letter before the worker stops.
    lines = [line for line in lines if line["event"] != "dead_letters_growing"]
    assert [line["event"] for line in lines] == [
        *("worker_started", "run_failed", "worker_stopping", "worker_stopped"),
    ]
    assert "exit 3: oops" in lines[1]["error"]


def test_a_paused_queue_does_not_keep_a_worker_that_is_to_stop_when_empty(
    terminal: Terminal,
) -> None:
    enqueue(terminal, "j1", "true")
    terminal.call("queue", "pause", "shell")
    terminal.run("worker", "start", "--stop-when-empty")
    assert terminal.state("j1") == "ready"


def test_a_worker_serves_every_shell_queue_there_is(terminal: Terminal) -> None:
    enqueue(terminal, "a", "true", queue="nightly")
    enqueue(terminal, "b", "true", queue="hourly")
    terminal.run("worker", "start", "--stop-when-empty")
    assert terminal.states() == {"a": "completed", "b": "completed"}


def test_a_worker_of_one_queue_leaves_the_others(terminal: Terminal) -> None:
    enqueue(terminal, "a", "true", queue="nightly")
    enqueue(terminal, "b", "true")
    terminal.run("worker", "start", "--queue", "nightly", "--stop-when-empty")
    assert terminal.states() == {"a": "completed", "b": "ready"}


def test_no_worker_and_no_job_is_left_behind(terminal: Terminal) -> None:
    """The guard itself is killed: the command goes with it."""
    enqueue(terminal, "j1", "echo $PPID $$ > pids; exec sleep 600", max_retries=1)
    with terminal.start("worker", "start") as worker:
        path = terminal.folder / "pids"
        guard, command = map(int, until(lambda: path.exists() and path.read_text().split()))
        os.kill(guard, signal.SIGKILL)
        until(lambda: not alive(command))
        until(lambda: terminal.state("j1") == "dead")
        assert worker.poll() is None
    error = terminal.call("show", "j1", "--json").json["error"]
    assert "its supervising process was killed" in error


def test_a_worker_warns_of_settings_that_differ_from_the_code(terminal: Terminal) -> None:
    terminal.write("shop.py", APP + 'app.queue("default", max_attempts=7)\n')
    said = terminal.run("worker", "start", "shop:app", "--stop-when-empty")
    assert "queue=default setting=max_attempts code=7 store=5" in said.err
    assert "penstock migrate" in said.err
