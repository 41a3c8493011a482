"""API keys, roles, trusts and the record of acts, on the command line."""

from pathlib import Path

from tests.cli.terminal import Terminal


def test_a_key_is_printed_once_and_listed_without_its_secret(terminal: Terminal) -> None:
    said = terminal.call("key", "create", "checkout", "--role", "producer", "--expires", "30d")
    key = said.out.strip()
    assert key.startswith("psk_")
    assert "not shown again" in said.err
    listed = terminal.call("key", "list")
    assert "checkout" in listed.out
    assert key not in listed.out
    (told,) = terminal.call("key", "list", "--json").lines
    assert (told["state"], told["roles"], told["name"]) == ("active", ["producer"], "checkout")
    assert key.split("_")[1] == told["id"]


def test_a_key_is_rotated_and_revoked(terminal: Terminal) -> None:
    made = terminal.call("key", "create", "k", "--grant", "publish:mail-*", "--json").json
    new = terminal.call("key", "rotate", made["id"], "--grace", "1h", "--json").json
    assert new["id"] == made["id"]
    assert new["key"] != made["key"]
    assert "revoked" in terminal.call("key", "revoke", made["id"]).out
    assert terminal.call("key", "list", "--json").lines[0]["state"] == "revoked"
    assert "revoked" in terminal.call("key", "rotate", made["id"], code=1).err
    assert "no key with id" in terminal.call("key", "revoke", "zz", code=1).err


def test_a_key_that_makes_no_sense_is_refused(terminal: Terminal) -> None:
    assert "needs at least one role or grant" in terminal.call("key", "create", "k", code=1).err
    assert "no role named" in terminal.call("key", "create", "k", "--role", "x", code=1).err
    assert "is not a grant" in terminal.call("key", "create", "k", "--grant", "dance", code=1).err
    assert (
        "duration"
        in terminal.call("key", "create", "k", "--role", "viewer", "--expires", "soon", code=1).err
    )
    assert terminal.call("key", "list", "--json").lines == []


def test_roles_and_trusts(terminal: Terminal) -> None:
    terminal.call("role", "set", "auditor", "--", "read", "-read:payroll")
    assert "-read:payroll" in terminal.call("role", "list").out
    terminal.call("key", "create", "a", "--role", "auditor")
    assert "built in" in terminal.call("role", "set", "admin", "read", code=1).err
    terminal.call("role", "delete", "auditor")
    assert "no role named" in terminal.call("role", "delete", "auditor", code=1).err
    assert "no scope named" in terminal.call("trust", "set", "b", "default", "read", code=1).err
    said = terminal.call("trust", "set", "default", "default", "publish:inbox")
    assert "publish:inbox" in said.out
    assert terminal.call("trust", "list", "--json").lines[0]["grants"] == ["publish:inbox"]
    terminal.call("trust", "delete", "default", "default")
    assert terminal.call("trust", "list").out == "no trusts\n"


def test_access_to_a_queue_is_no_grant(terminal: Terminal) -> None:
    refused = terminal.call("key", "create", "a", "--grant", "access:mail-*", code=1)
    assert "cannot be limited to a queue" in refused.err
    refused = terminal.call("role", "set", "clerk", "access:mail-*", code=1)
    assert "cannot be limited to a queue" in refused.err
    terminal.call("key", "create", "a", "--grant", "access")
    (act,) = terminal.call("audit", "--json").lines
    assert (act["verb"], act["scope"]) == ("key create", "")


def test_what_commands_did_is_written_down_with_who(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    terminal.call("queue", "pause", "mail")
    terminal.call("enqueue", '{"id": "j1", "command": "echo hush-hush"}')
    terminal.call("cancel", "shell/j1")
    acts = terminal.call("audit", "--json").lines
    done = [(each["verb"], each["target"]) for each in reversed(acts)]
    assert done[:2] == [("queue create", "mail"), ("queue pause", "mail")]
    assert done[-1] == ("cancel", "shell/j1")
    assert all("@" in each["subject"] for each in acts)
    assert {each["scope"] for each in acts if each["verb"] == "queue pause"} == {"default"}
    assert "hush" not in terminal.call("audit").out


def test_a_secret_setting_is_not_shown(terminal: Terminal, tmp_path: Path) -> None:
    terminal.write("penstock.toml", 'introspect_secret = "hush"\n')
    said = terminal.call("config", "show")
    assert "hush" not in said.out
    assert "(set)" in said.out
