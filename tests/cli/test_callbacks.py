"""Callbacks on the command line: asked for, listed, and the secret that signs them."""

from tests.cli.consumer import kill, publish
from tests.cli.terminal import Terminal

URL = "https://example.org/done"


def test_the_callbacks_of_a_message_are_listed(terminal: Terminal) -> None:
    publish(callback=URL)
    assert terminal.call("callback", "list", 1).out == "no callbacks\n"
    kill("no good")
    (row,) = terminal.call("callback", "list", 1).rows()
    assert row[:4] == ["2", "dead", "ready", "0"]
    told = terminal.call("callback", "list", 1, "--json").json
    assert told["body"] == {"id": "1", "state": "dead", "reason": "rejected"}
    assert URL in terminal.call("show", 1).out
    assert "no message with id 7" in terminal.call("callback", "list", 7, code=1).err


def test_a_shell_job_has_a_callback_by_json_or_by_option(terminal: Terminal) -> None:
    terminal.call("enqueue", f'{{"id": "j1", "command": "true", "callback": "{URL}"}}')
    terminal.call("enqueue", "--id", "j2", "--command", "true", "--callback", URL)
    for name in ("j1", "j2"):
        assert terminal.call("show", name, "--json").json["callback"] == URL
    wrong = terminal.call("enqueue", "--command", "true", "--callback", "example.org", code=1)
    assert "callback 'example.org' must use http or https" in wrong.err


def test_the_secret_is_shown_and_replaced(terminal: Terminal) -> None:
    publish()
    first = terminal.call("callback", "secret", "--json").json
    assert first == {"secret": first["secret"]}
    rotated = terminal.call("callback", "rotate", "--json").json
    assert rotated["previous"] == first["secret"] != rotated["secret"]
    assert terminal.call("callback", "secret", "--json").json == rotated
    assert rotated["secret"] in terminal.call("callback", "secret").out


def test_where_callbacks_go_is_a_setting(terminal: Terminal) -> None:
    (terminal.folder / "penstock.toml").write_text("allow_private_callbacks = true\n")
    shown = terminal.call("config", "show", "--json").json
    assert shown["allow_private_callbacks"] == {"value": True, "from": "penstock.toml"}
    assert shown["callback_ports"]["value"] == "80,443,8080,8443"
    wrong = terminal.run("serve", "--callback-ports", "80;443", "--port", 0, code=1)
    assert "callback-ports '80;443' must be 'any' or ports such as 80,443" in wrong.err
