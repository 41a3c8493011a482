"""Workflows and jobs that depend on others, on the command line."""

import json

from tests.cli.terminal import Terminal, until


def state_of(terminal: Terminal, name: str) -> str:
    return str(terminal.call("show", name, "--json").json["state"])


def test_a_job_runs_after_the_jobs_it_names(terminal: Terminal) -> None:
    terminal.call("enqueue", '{"id": "a", "command": "echo a"}')
    terminal.call("enqueue", '{"id": "b", "command": "echo b", "after": ["a"]}')
    terminal.call("enqueue", "--command", "echo c", "--id", "c", "--after", "a", "--after", "b")
    assert [state_of(terminal, name) for name in "abc"] == ["ready", "scheduled", "scheduled"]
    with terminal.start("worker", "start"):
        until(lambda: [state_of(terminal, name) for name in "abc"] == ["completed"] * 3)
        terminal.call("enqueue", '{"id": "d", "command": "echo d", "after": ["a"]}')
        until(lambda: state_of(terminal, "d") == "completed")


def test_a_worker_that_stops_when_empty_runs_what_waits_for_its_jobs(terminal: Terminal) -> None:
    terminal.call("enqueue", '{"id": "a", "command": "echo a"}')
    for name, before in zip("bcd", "abc", strict=True):
        terminal.call("enqueue", "--command", "echo", "--id", name, "--after", before)
    terminal.call("worker", "start", "--count", "1", "--stop-when-empty")
    assert [state_of(terminal, name) for name in "abcd"] == ["completed"] * 4


def test_jobs_that_depend_on_nothing_known_are_refused(terminal: Terminal) -> None:
    said = terminal.call("enqueue", '{"command": "x", "after": ["nope"]}', code=1).err
    assert "no message named 'nope' in queue 'shell'" in said
    loop = [
        {"id": "a", "command": "x", "after": ["b"]},
        {"id": "b", "command": "x", "after": ["a"]},
    ]
    said = terminal.call("enqueue", *map(json.dumps, loop), code=1).err
    assert "waits for itself" in said
    assert terminal.call("list", "--json").out == ""
