"""Putting work in: shell jobs in every form, tasks by name, and what is refused."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, until

APP = """
from penstock import Penstock
app = Penstock()

@app.task
def add(a: int, b: int) -> int:
    return a + b

@app.task
def greet(name: str, greeting: str = "hello") -> dict[str, str]:
    return {greeting: name}

@app.task(max_attempts=1)
def fail() -> None:
    raise RuntimeError("never")
"""


def test_a_job_may_be_given_by_options(terminal: Terminal) -> None:
    said = terminal.call(
        *("enqueue", "--command", "echo $A", "--id", "j1", "--max-retries", 4, "--priority", 2),
        *("--timeout", 5, "--env", "A=1", "--env", "B=x=y", "--cwd", "/tmp", "--queue", "nightly"),
    )
    assert said.out == "enqueued nightly/j1 (nightly, id 1)\n"
    shown = terminal.call("show", "nightly/j1", "--json").json
    assert shown["body"] == {"command": "echo $A", "env": {"A": "1", "B": "x=y"}, "cwd": "/tmp"}
    assert (shown["priority"], shown["type"]) == (2, "penstock.shell")


@pytest.mark.parametrize("id", ["7", "a/b", "plain"])
def test_a_job_is_told_by_what_finds_it(terminal: Terminal, id: str) -> None:
    said = terminal.call("enqueue", "--command", "true", "--id", id).out
    reference = said.split()[1]
    assert terminal.call("show", reference, "--json").json["name"] == id


def test_jobs_of_standard_input_are_one_step(terminal: Terminal) -> None:
    lines = '{"id":"a","command":"true"}\n\n{"id":"b","command":"true"}\n'
    assert terminal.call("enqueue", "-", stdin=lines).out == (
        "enqueued a (shell, id 1)\nenqueued b (shell, id 2)\n"
    )
    again = '{"id":"c","command":"true"}\n{"id":"a","command":"true"}\n'
    assert "'a'" in terminal.call("enqueue", "-", stdin=again, code=1).err
    assert sorted(terminal.states()) == ["a", "b"]


def test_a_bad_line_is_named_and_nothing_is_enqueued(terminal: Terminal) -> None:
    said = terminal.call("enqueue", "-", stdin='{"command":"true"}\n{"comand":"x"}\n', code=1)
    assert said.err.startswith("penstock: line 2: ")
    assert not (terminal.folder / "penstock.db").exists()


def test_input_that_never_ends_is_refused(terminal: Terminal) -> None:
    endless = "{}\n" * (22 * 1_048_576)
    assert "64 MB" in terminal.call("enqueue", "-", stdin=endless, code=1).err


def test_the_json_of_enqueue_has_the_id_as_text(terminal: Terminal) -> None:
    said = terminal.call("enqueue", '{"command":"true"}', "--json")
    assert said.json == {"id": "1", "name": None, "queue": "shell"}


BAD_JOBS = {
    "no json": ("echo hi", "malformed"),
    "a list": ("[1]", "Expected `object`"),
    "an unknown field": (
        '{"command":"x","retries":3}',
        "unknown field `retries`; valid fields are command, id, ",
    ),
    "no command": ('{"id":"j1"}', "missing required field `command`"),
    "an empty command": ('{"command":""}', "command is empty"),
    "an empty list": ('{"command":[]}', "command is empty"),
    "a number of retries in words": ('{"command":"x","max_retries":"3"}', "max_retries"),
    "no retries at all": ('{"command":"x","max_retries":0}', "job: max_retries is 0; it must be"),
    "a wrong time": ('{"command":"x","run_at":"soon"}', "time 'soon' is invalid; write it like"),
    "a forbidden variable": ('{"command":"x","env":{"LD_PRELOAD":"y"}}', "LD_PRELOAD"),
    "a negative timeout": ('{"command":"x","timeout_seconds":-1}', "job: timeout_seconds is -1"),
    "a queue name with spaces": ('{"command":"x","queue":"a b"}', "'a b'"),
    "an empty id": ('{"command":"x","id":""}', "name ''"),
}


@pytest.mark.parametrize(("text", "told"), BAD_JOBS.values(), ids=BAD_JOBS.keys())
def test_a_bad_job_is_refused_in_one_line(terminal: Terminal, text: str, told: str) -> None:
    said = terminal.call("enqueue", text, code=1)
    assert said.err.startswith("penstock: ")
    assert said.err.count("\n") == 1
    assert told in said.err


def test_a_shell_job_for_a_queue_without_shell_is_refused(terminal: Terminal) -> None:
    said = terminal.call("enqueue", '{"command":"x","queue":"default"}', code=1)
    assert "does not accept shell jobs" in said.err


@pytest.mark.parametrize("words", [[], ['{"command":"x"}', "--id", "j1"]])
def test_jobs_and_options_together_or_neither_are_wrong_usage(
    terminal: Terminal, words: list[str]
) -> None:
    assert (
        "Give jobs as JSON, or one job with options" in terminal.call("enqueue", *words, code=2).err
    )


@pytest.fixture
def shop(terminal: Terminal) -> Terminal:
    """With an app, found by pyproject.toml."""
    terminal.write("shop.py", APP)
    terminal.write("pyproject.toml", '[tool.penstock]\napp = "shop:app"\n')
    return terminal


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of the directory are imported into this process, and forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_sent_task_runs_with_its_typed_arguments(shop: Terminal) -> None:
    with shop.start("worker", "start"):
        assert shop.run("send", "shop.add", 2, -3, "--wait").out == "-1\n"
        assert shop.run("send", "shop.greet", "Ada", "greeting=hi", "--wait", "--json").json == {
            "id": "2",
            "result": {"hi": "Ada"},
        }
        failed = shop.run("send", "shop.fail", "--wait", code=1)
        assert "RuntimeError: never" in failed.err


def test_send_without_wait_says_the_id(shop: Terminal) -> None:
    assert shop.run("send", "shop.add", 1, 2).out == "enqueued shop.add (id 1)\n"
    assert shop.run("send", "shop.add", 1, 2, "--json").json == {"id": "2", "task": "shop.add"}
    assert shop.call("list", "--json", "--limit", 1).json["type"] == "shop.add"


BAD_SENDS = {
    "an unknown task": (["shop.nothing"], 1, "no task named 'shop.nothing'"),
    "too few arguments": (["shop.add", "1"], 1, "missing a required argument: 'b'"),
    "an argument of another type": (["shop.add", "1", "two"], 1, "Expected `int`"),
    "an unknown option": (["shop.add", "1", "2", "--wiat"], 2, "No such option"),
    "no result in time": (["shop.add", "1", "2", "--wait", "--timeout", "0.1"], 1, "did not end"),
}


@pytest.mark.parametrize(("words", "code", "told"), BAD_SENDS.values(), ids=BAD_SENDS.keys())
def test_a_wrong_send_is_refused(
    shop: Terminal, words: list[str], code: int, told: str, imports: None
) -> None:
    assert told in shop.call("send", *words, code=code).err


def test_send_and_worker_follow_the_url_of_the_command_line(shop: Terminal) -> None:
    url = "sqlite:///other.db"
    shop.run("send", "shop.add", 1, 2, "--url", url)
    shop.run("worker", "start", "--stop-when-empty", "--url", url)
    (job,) = shop.call("list", "--json", "--url", url).lines
    assert (job["type"], job["state"]) == ("shop.add", "completed")
    assert not (shop.folder / "penstock.db").exists()


MISUSES = """
from penstock import Penstock

@Penstock().task(quue="mail")
def send() -> None: ...
"""
BAD_APPS = {
    "no such module": ("nowhere:app", "no module named 'nowhere'"),
    "no colon": ("shop", "is not of the form module:app"),
    "a file": ("shop.py:app", "is a file path"),
    "no such app": ("shop:queue", "did you mean shop:app?"),
    "a module that raises": ("broken:app", "ZeroDivisionError: division by zero, at "),
    "a module that exits": ("exits:app", "SystemExit: 7"),
    "a module that uses us wrongly": (
        "misuses:app",
        "no option named 'quue'; did you mean 'queue'?",
    ),
    "where it uses us wrongly": ("misuses:app", "misuses.py:4"),
    "a module with a wrong line": ("wrong:app", "SyntaxError"),
    "a module that lacks another": ("lacks:app", "No module named 'elsewhere'"),
}


@pytest.mark.parametrize(("reference", "told"), BAD_APPS.values(), ids=BAD_APPS.keys())
def test_an_app_that_cannot_be_loaded_is_one_line(
    shop: Terminal, reference: str, told: str, imports: None
) -> None:
    shop.write("broken.py", "1 / 0\n")
    shop.write("exits.py", "import sys\nsys.exit(7)\n")
    shop.write("wrong.py", "def\n")
    shop.write("lacks.py", "import elsewhere\n")
    shop.write("misuses.py", MISUSES)
    said = shop.call("send", "shop.add", "--app", reference, code=1)
    assert told in said.err
    assert said.err.count("\n") == 1


def test_a_module_that_enqueues_when_it_is_imported_is_told_how_not_to(shop: Terminal) -> None:
    shop.write("eager.py", f"{APP}\nadd.enqueue(1, 2)\n")
    said = shop.run("worker", "start", "eager:app", code=1)
    assert "eager.py" in said.err
    assert "put code that must run only as a script under if __name__ == '__main__':" in said.err


def test_the_environment_names_the_app_where_the_command_line_does_not(shop: Terminal) -> None:
    shop.write("other.py", APP.replace("def add", "def plus"))
    assert "other.plus" in shop.run("send", "x", code=1, PENSTOCK_APP="other:app").err


def test_a_shell_job_sees_little_of_the_workers_environment(terminal: Terminal) -> None:
    terminal.call("enqueue", json.dumps({"command": "env", "env": {"MINE": "1"}, "cwd": "/"}))
    terminal.run("worker", "start", "--stop-when-empty", SECRET="x")
    printed = terminal.call("show", 1, "--output").out
    names = {line.partition("=")[0] for line in printed.splitlines()[1:]}
    assert {"MINE", "PATH", "PENSTOCK_JOB", "PENSTOCK_ATTEMPT", "PENSTOCK_FENCE"} <= names
    assert "SECRET" not in names
    assert "PWD=/\n" in printed or "PWD" not in names


def test_a_worker_of_an_app_leaves_shell_jobs_alone(shop: Terminal) -> None:
    shop.call("enqueue", '{"id":"j1","command":"true"}')
    shop.run("send", "shop.add", 1, 2)
    with shop.start("worker", "start"):
        until(lambda: shop.state("2") == "completed")
    assert shop.call("show", "j1", "--json").json["timeline"] == []
    shop.run("worker", "start", "--shell", "--stop-when-empty")
    assert shop.state("j1") == "completed"


def test_an_app_with_a_task_on_a_shell_queue_is_refused(shop: Terminal) -> None:
    shop.call("enqueue", '{"command":"true"}')
    shop.write("greedy.py", APP.replace("@app.task\ndef add", "@app.task(queue='shell')\ndef add"))
    said = shop.run("worker", "start", "greedy:app", code=1)
    assert "queue 'shell' runs only shell jobs" in said.err


def test_a_store_that_does_not_exist_is_made_by_enqueue_only(
    terminal: Terminal, tmp_path: Path
) -> None:
    said = terminal.call("status", code=3)
    assert "no store at" in said.err
    assert list(tmp_path.iterdir()) == []
    terminal.call("enqueue", '{"command":"true"}')
    assert (tmp_path / "penstock.db").exists()
