"""Every case of QueueCTL, through the installed command on a real file."""

import json
import signal
from datetime import UTC, datetime, timedelta

from tests.cli.terminal import Terminal, until


def job(**fields: object) -> str:
    return json.dumps(fields)


def moments(terminal: Terminal, reference: str) -> list[datetime]:
    """When each run of a job began."""
    timeline = terminal.call("show", reference, "--json").json["timeline"]
    return [datetime.fromisoformat(row["claimed_at"]) for row in timeline]


def test_an_enqueued_command_is_run_and_its_output_is_kept(terminal: Terminal) -> None:
    terminal.run("enqueue", '{"id":"j1","command":"echo hi"}')
    worker = terminal.run("worker", "start", "--count", 1, "--stop-when-empty")
    assert worker.out == ""
    assert terminal.state("j1") == "completed"
    output = terminal.folder / "penstock.db.jobs" / "1" / "stdout.log"
    assert output.read_text().splitlines()[1:] == ["hi"]


def test_a_failing_command_runs_three_times_with_growing_gaps_and_is_dead(
    terminal: Terminal,
) -> None:
    terminal.call("enqueue", job(id="j1", command="exit 1", max_retries=3))
    terminal.run("worker", "start", "--stop-when-empty")
    shown = terminal.call("show", "j1", "--json").json
    assert [row["state"] for row in shown["timeline"]] == ["scheduled", "scheduled", "dead"]
    first, second, third = moments(terminal, "j1")
    assert second - first >= timedelta(seconds=2)
    assert third - second >= timedelta(seconds=4)
    (letter,) = terminal.call("dlq", "list", "--json").lines
    assert (letter["name"], letter["attempts"], letter["reason"]) == ("j1", 3, "retries_exhausted")
    terminal.call("dlq", "retry", "j1")
    again = terminal.call("show", "j1", "--json").json
    assert (again["state"], again["attempts"]) == ("ready", 0)
    assert "not dead" in terminal.run("dlq", "retry", "j1", code=1).err


def test_an_unknown_command_is_recorded_and_the_worker_lives_on(terminal: Terminal) -> None:
    terminal.call("enqueue", job(id="bad", command="no-such-command", max_retries=1))
    terminal.call("enqueue", job(id="worse", command=["no-such-command"], max_retries=1))
    terminal.call("enqueue", job(id="good", command="true", priority=9))
    terminal.run("worker", "start", "--count", 1, "--stop-when-empty")
    assert terminal.states() == {"bad": "dead", "worse": "dead", "good": "completed"}
    for name in ("bad", "worse"):
        assert "command not found" in terminal.call("show", name, "--json").json["error"]


def test_four_workers_run_200_jobs_once_each(terminal: Terminal) -> None:
    lines = "\n".join(job(id=f"j{n}", command=f"echo j{n} >> out.txt") for n in range(200))
    terminal.write("jobs.jsonl", lines)
    assert len(terminal.call("enqueue", "-", "--json", stdin=lines).lines) == 200
    terminal.run("worker", "start", "--processes", 2, "--count", 2, "--stop-when-empty")
    ran = (terminal.folder / "out.txt").read_text().split()
    assert sorted(ran) == sorted(f"j{n}" for n in range(200))
    assert set(terminal.states().values()) == {"completed"}


def test_a_lower_priority_number_runs_first_with_one_worker(terminal: Terminal) -> None:
    for priority in (5, 1, 9, 0):
        terminal.call("enqueue", job(command=f"echo {priority} >> out.txt", priority=priority))
    terminal.run("worker", "start", "--count", 1, "--stop-when-empty")
    assert (terminal.folder / "out.txt").read_text().split() == ["0", "1", "5", "9"]


def test_a_running_worker_uses_a_new_backoff_base_and_it_survives_a_restart(
    terminal: Terminal,
) -> None:
    terminal.call("config", "set", "backoff-base", 2)
    with terminal.start("worker", "start"):
        until(lambda: terminal.call("status", "--json").json["workers"])
        terminal.call("config", "set", "backoff-base", 3)
        # Settings are cached for a second, so the first failure may still be by the old ones.
        terminal.call("enqueue", job(id="j1", command="exit 1", max_retries=3))
        until(lambda: terminal.call("show", "j1", "--json").json["attempts"] == 2)
    second = terminal.call("show", "j1", "--json").json["timeline"][1]
    gap = datetime.fromisoformat(second["due_at"]) - datetime.fromisoformat(second["at"])
    assert round(gap.total_seconds()) == 9
    assert terminal.call("config", "get", "backoff-base").out == "3.0\n"


def test_a_job_of_the_future_waits(terminal: Terminal) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    terminal.call("enqueue", job(id="later", command="true", run_at=later))
    terminal.call("enqueue", job(id="now", command="true"))
    terminal.run("worker", "start", "--stop-when-empty")
    assert terminal.states() == {"later": "scheduled", "now": "completed"}


def test_a_job_of_the_near_future_runs_when_it_is_due(terminal: Terminal) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    terminal.call("enqueue", job(id="soon", command="true", run_at=soon.isoformat()))
    with terminal.start("worker", "start"):
        until(lambda: terminal.state("soon") == "completed")
    assert moments(terminal, "soon")[0] >= soon


def test_invalid_json_is_refused_with_exit_code_1(terminal: Terminal) -> None:
    said = terminal.run("enqueue", '{"id":', code=1)
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("penstock: job: ")
    assert terminal.queuectl("enqueue", '{"id":', code=1).err.startswith("queuectl: job: ")
    assert not (terminal.folder / "penstock.db").exists()


def test_a_second_job_of_the_same_id_is_refused_with_exit_code_1(terminal: Terminal) -> None:
    terminal.call("enqueue", '{"id":"j1","command":"true"}')
    said = terminal.run("enqueue", '{"id":"j1","command":"true"}', code=1)
    assert "already has a message named 'j1'" in said.err
    assert terminal.states() == {"j1": "ready"}


def test_a_worker_stopped_from_another_terminal_lets_its_job_finish(terminal: Terminal) -> None:
    waits = "touch begun; until test -e go; do sleep 0.05; done"
    terminal.call("enqueue", job(id="slow", command=waits))
    with terminal.start("worker", "start", "--count", 1) as worker:
        until((terminal.folder / "begun").exists)
        terminal.call("enqueue", job(id="next", command="true"))
        terminal.call("worker", "stop", "--no-wait")
        assert terminal.call("worker", "list", "--json").json["state"] == "stopping"
        assert worker.stderr is not None
        assert any("worker stopping: reason='stop requested'" in line for line in worker.stderr)
        terminal.write("go", "")
        assert worker.wait(60) == 0
    assert terminal.states() == {"slow": "completed", "next": "ready"}
    assert terminal.call("status", "--json").json["workers"] == 0


def test_a_power_cut_loses_no_job(terminal: Terminal) -> None:
    lines = "\n".join(job(id=f"j{n}", command=f"echo j{n} >> out.txt") for n in range(40))
    terminal.call("enqueue", "-", stdin=lines)
    with (
        terminal.start("worker", "start", "--lease", 1, "--count", 4) as first,
        terminal.start("worker", "start", "--lease", 1, "--count", 4) as second,
    ):
        until((terminal.folder / "out.txt").exists)
        for worker in (first, second):
            worker.send_signal(signal.SIGKILL)
    assert terminal.call("status", "--json").json["workers"] == 0
    terminal.run("worker", "start", "--lease", 1, "--stop-when-empty")
    assert set((terminal.folder / "out.txt").read_text().split()) == {f"j{n}" for n in range(40)}
    assert set(terminal.states().values()) == {"completed"}
