"""Why a message does not run, on the command line."""

from tests.cli.terminal import Terminal


def test_a_job_without_a_worker_is_explained(terminal: Terminal) -> None:
    terminal.call("enqueue", '{"id": "j1", "command": "echo hi"}')
    said = terminal.call("explain", "shell/j1")
    assert said.out.startswith("NO_WORKER: no registered worker serves queue 'shell'")
    terminal.call("queue", "pause", "shell")
    causes = terminal.call("explain", "j1", "--json").json["causes"]
    assert [cause["code"] for cause in causes] == ["QUEUE_PAUSED", "NO_WORKER", "NEXT"]
    assert causes[0]["remedy"] == "resume it: penstock queue resume shell"


def test_a_message_that_does_not_exist_is_not_explained(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    assert "no message with id 42" in terminal.call("explain", "42", code=1).err
