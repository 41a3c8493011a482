"""The command `queuectl`: QueueCTL's spellings, states, fields and settings."""

import subprocess
from datetime import datetime

from tests.cli.terminal import QUEUECTL, Terminal, until
from tests.cli.test_queuectl import job


def list_ids(terminal: Terminal, state: str) -> list[str]:
    return [each["id"] for each in terminal.queuectl("list", "--state", state, "--json").lines]


def test_queuectl_is_installed_and_runs_a_job(terminal: Terminal) -> None:
    for words in (["enqueue", job(id="j1", command="echo hi")], ["worker", "start", "--count", "1",
                  "--stop-when-empty"]):  # fmt: skip
        subprocess.run(
            [QUEUECTL, *words], cwd=terminal.folder, env=terminal.environment, check=True
        )
    (found,) = terminal.queuectl("list", "--json").lines
    assert (found["id"], found["command"], found["state"]) == ("j1", "echo hi", "completed")
    assert found["stdout_path"].endswith("penstock.db.jobs/1/stdout.log")


def test_jobs_are_listed_by_the_states_of_queuectl(terminal: Terminal) -> None:
    terminal.queuectl("config", "set", "backoff_base", 600)
    for name, retries in (("dead", 1), ("retry", 3)):
        terminal.queuectl("enqueue", job(id=name, command="exit 1", max_retries=retries))
    terminal.queuectl("enqueue", job(id="done", command="true"))
    with terminal.start("worker", "start"):
        until(lambda: list_ids(terminal, "failed") and list_ids(terminal, "completed"))
        until(lambda: list_ids(terminal, "dead"))
        terminal.queuectl("enqueue", job(id="busy", command="sleep 600"))
        assert until(lambda: list_ids(terminal, "processing")) == ["busy"]
        terminal.run("worker", "list")
    terminal.queuectl("enqueue", job(id="later", command="true", run_at="2099-01-01T00:00:00Z"))
    terminal.queuectl("enqueue", job(id="next", command="true"))
    assert list_ids(terminal, "pending") == ["next", "later"]
    assert list_ids(terminal, "failed") == ["retry"]
    assert list_ids(terminal, "completed") == ["done"]
    assert list_ids(terminal, "dead") == ["dead"]
    pending = terminal.call("list", "--state", "pending", "--json").lines
    assert [each["name"] for each in pending] == ["next", "later", "retry"]
    processing = terminal.call("list", "--state", "processing", "--json").lines
    assert [each["name"] for each in processing] == ["busy"]


def test_a_listed_job_has_the_fields_of_queuectl(terminal: Terminal) -> None:
    terminal.call("queue", "create", "other")
    assert terminal.queuectl("list").out == "no jobs\n"
    terminal.queuectl(
        "enqueue", job(id="j1", command=["ls", "-l"], priority=4, timeout_seconds=9, max_retries=2)
    )
    (found,) = terminal.queuectl("list", "--json").lines
    created = found.pop("created_at")
    assert found == {
        "id": "j1",
        "command": "ls -l",
        "state": "pending",
        "attempts": 0,
        "max_retries": 2,
        "priority": 4,
        "timeout_seconds": 9,
        "next_run_at": None,
        "locked_by": None,
        "locked_at": None,
        "last_error": None,
        "stdout_path": None,
        "stderr_path": None,
        "updated_at": created,
    }


def test_a_job_may_name_its_start_as_queuectl_does(terminal: Terminal) -> None:
    start = "2099-01-01T00:00:00.000000Z"
    terminal.queuectl("enqueue", job(id="later", command="true", next_run_at=start))
    (found,) = terminal.queuectl("list", "--json").lines
    assert (found["state"], found["next_run_at"]) == ("pending", start)
    twice = job(command="true", next_run_at=start, run_at=start)
    assert "are the same; give one of them" in terminal.queuectl("enqueue", twice, code=1).err


def test_settings_are_spelled_with_underscores_or_dashes(terminal: Terminal) -> None:
    for spelling, value in (("max_retries", 4), ("backoff_base", 3.0), ("poll_interval", 0.5)):
        terminal.queuectl("config", "set", spelling, value)
        assert terminal.queuectl("config", "get", spelling).out == f"{value}\n"
        dashed = spelling.replace("_", "-")
        assert terminal.call("config", "get", dashed, "--json").json == {dashed: value}
    error = terminal.queuectl("config", "set", "max_tries", 3, code=1).err
    assert "unknown setting 'max_tries'" in error


def test_a_retried_letter_given_by_name_keeps_its_id_and_its_text(terminal: Terminal) -> None:
    terminal.call("enqueue", job(id="j1", command="exit 1", max_retries=1))
    terminal.run("worker", "start", "--stop-when-empty")
    assert terminal.queuectl("dlq", "retry", "j1").out == "1 retried\n"
    terminal.call("cancel", "j1")
    assert terminal.call("redrive", "j1").out == "1 redriven, as 2\n"


def test_a_running_shell_worker_uses_a_changed_lease(terminal: Terminal) -> None:
    def held_for(name: str) -> int:
        terminal.call("enqueue", job(id=name, command="sleep 600"))
        held = until(lambda: terminal.call("list", "--state", "claimed", "--json").lines)
        shown = terminal.call("show", name, "--json").json
        terminal.call("cancel", name)
        until(lambda: terminal.state(name) == "cancelled")
        claimed = datetime.fromisoformat(held[0]["claimed_at"])
        until_ = datetime.fromisoformat(shown["lease_until"])
        return round((until_ - claimed).total_seconds())

    with terminal.start("worker", "start"):
        until((terminal.folder / "penstock.db").exists)
        assert held_for("first") >= 30
        assert terminal.call("config", "get", "lease").out == "30.0\n"
        terminal.call("config", "set", "lease", 500)
        # Settings are cached for a second, so the next claim may still use the old lease.
        until(lambda: held_for(f"j{len(terminal.states())}") >= 500)


def test_a_shell_job_runs_by_cron(terminal: Terminal) -> None:
    line = ("--cron", "* * * * * *", "--command", "echo x >> out.txt")
    assert terminal.queuectl("schedule", "create", "beat", *line).out.startswith(
        "beat runs next at"
    )
    out = terminal.folder / "out.txt"
    with terminal.start("worker", "start"):
        until(lambda: out.exists() and len(out.read_text().split()) >= 2)
