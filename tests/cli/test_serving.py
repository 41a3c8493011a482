"""serve, up, and where their settings come from."""

import signal
import subprocess
from http.client import HTTPConnection

import pytest

from penstock.cli.commands.serve import ServePlan
from penstock.cli.settings import Settings
from tests.cli.terminal import Terminal, until
from tests.servers.places import free_port


def answers(port: int, path: str = "/healthz") -> bytes:
    """Empty while nobody listens."""
    return ask(port, path)[0]


def ask(port: int, path: str = "/healthz") -> tuple[bytes, str]:
    """The answer, and which process gave it."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.read(), response.headers["x-request-id"].partition("-")[0]
    except ConnectionRefusedError:
        return b"", ""
    finally:
        connection.close()


def end(process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> str:
    process.send_signal(number)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    return log


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
@pytest.mark.parametrize("command", ["serve", "up"])
def test_an_address_that_others_reach_is_refused(
    terminal: Terminal, command: str, host: str
) -> None:
    said = terminal.call(command, "--host", host, code=1)
    assert f"--host {host} without --auth would expose" in said.err
    assert list(terminal.folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_serves_until_it_is_told_to_stop(terminal: Terminal, number: int) -> None:
    port = free_port()
    with terminal.start("serve", "--port", port) as server:
        assert until(lambda: answers(port)) == b'{"status":"ok"}'
        log = end(server, number)
    assert "server started" in log
    assert "every local client has full access" in log
    assert log.splitlines()[-1].endswith("server stopped")


def test_a_port_that_is_taken_is_told_in_one_line(terminal: Terminal) -> None:
    port = free_port()
    with terminal.start("serve", "--port", port) as server:
        until(lambda: answers(port))
        said = terminal.run("serve", "--port", port, code=1)
        assert said.err == f"penstock: cannot listen on 127.0.0.1:{port}: Address already in use\n"
        end(server)


def test_several_server_processes_share_a_port_and_end_together(terminal: Terminal) -> None:
    port = free_port()
    with terminal.start("serve", "--port", port, "--workers", 2) as servers:
        until(lambda: len({ask(port)[1] for _ in range(20)} - {""}) == 2)
        log = end(servers)
    assert (log.count("server started"), log.count("server stopped")) == (2, 2)


def test_up_is_a_server_and_a_worker(terminal: Terminal) -> None:
    port = free_port()
    with terminal.start("up", "--port", port) as both:
        until(lambda: b'"running"' in answers(port, "/v1/workers"))
        terminal.run("enqueue", '{"id": "j1", "command": "echo hi"}')
        until(lambda: b'"completed"' in answers(port, "/v1/messages/shell/j1"))
        log = end(both)
    assert "server stopped" in log
    assert "worker stopped" in log


def test_up_runs_the_tasks_of_an_app(terminal: Terminal) -> None:
    terminal.write(
        "shop.py",
        "from penstock import Penstock\napp = Penstock()\n"
        "@app.task\ndef add(a: int, b: int) -> int:\n    return a + b\n",
    )
    port = free_port()
    with terminal.start("up", "shop:app", "--port", port, PYTHONPATH=".") as both:
        until(lambda: b'"running"' in answers(port, "/v1/workers"))
        sent = terminal.run("send", "shop.add", 1, 2, "--wait", PENSTOCK_APP="shop:app")
        assert sent.out == "3\n"
        end(both)


def test_the_settings_are_shown_with_who_said_them(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.write("penstock.toml", 'port = 8000\nhost = "::1"\ngrace = 5\n')
    monkeypatch.setenv("PENSTOCK_PORT", "9000")
    told = terminal.call("config", "show", "--json", "--url", "sqlite:///x.db").json
    assert told["port"] == {"value": 9000, "from": "PENSTOCK_PORT"}
    assert told["host"] == {"value": "::1", "from": "penstock.toml"}
    assert told["grace"] == {"value": 5.0, "from": "penstock.toml"}
    assert told["url"] == {"value": "sqlite:///x.db", "from": "--url"}
    assert told["workers"] == {"value": 1, "from": "default"}
    assert told["artifacts"] == {"value": "x.db.artifacts", "from": "default"}
    assert ["port", "9000", "PENSTOCK_PORT"] in terminal.call("config", "show").rows()


def test_a_password_is_not_shown(terminal: Terminal) -> None:
    terminal.write("penstock.toml", 'url = "postgresql://me:s3cret@db/work"\n')
    for words in (["config", "show"], ["config", "show", "--json"]):
        said = terminal.call(*words)
        assert "postgresql://db/work" in said.out
        assert "s3cret" not in said.out + said.err


def test_a_project_file_says_where_the_store_is(terminal: Terminal) -> None:
    terminal.write("pyproject.toml", '[tool.penstock]\nurl = "sqlite:///other.db"\n')
    terminal.call("enqueue", '{"command": "true"}')
    assert (terminal.folder / "other.db").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "penstock.toml: unknown setting prot; valid settings are url"),
        ('port = "x"', "penstock.toml: port: Expected `int`"),
        ("port = ", "penstock.toml: "),
    ],
)
def test_a_wrong_file_is_told_in_one_line(terminal: Terminal, text: str, told: str) -> None:
    terminal.write("penstock.toml", text)
    said = terminal.call("config", "show", code=1)
    assert said.err.startswith(f"penstock: {told}")
    assert said.err.count("\n") == 1


def test_a_wrong_variable_is_told_in_one_line(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_PORT", "many")
    assert "PENSTOCK_PORT: Expected `int`" in terminal.call("config", "show", code=1).err


def test_trusted_proxies_are_a_list_wherever_they_are_named(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.write("penstock.toml", 'trusted_proxies = ["10.0.0.0/8", "::1"]\n')
    shown = terminal.call("config", "show", "--json").json["trusted_proxies"]
    assert shown == {"value": "10.0.0.0/8,::1", "from": "penstock.toml"}
    monkeypatch.setenv("PENSTOCK_TRUSTED_PROXIES", "10.0.0.1, 10.0.0.2")
    shown = terminal.call("config", "show", "--json").json["trusted_proxies"]
    assert shown == {"value": "10.0.0.1,10.0.0.2", "from": "PENSTOCK_TRUSTED_PROXIES"}
    wrong = terminal.run("serve", "--port", 0, "--trusted-proxies", "everybody", code=1)
    assert "trusted-proxies: 'everybody'" in wrong.err


def test_a_list_is_handed_on_to_every_process() -> None:
    given = Settings(trusted_proxies=("10.0.0.1", "10.0.0.2"))
    words = ServePlan(given, None, "text").to_command()
    at = words.index("--trusted-proxies")
    handed = ["--trusted-proxies", "10.0.0.1", "--trusted-proxies", "10.0.0.2"]
    assert words[at : at + 4] == handed
