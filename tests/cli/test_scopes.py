"""The scope commands."""

from tests.cli.terminal import Terminal


def test_a_scope_is_created_archived_and_used_again(terminal: Terminal) -> None:
    terminal.call("scope", "create", "billing", "--display-name", "Billing")
    terminal.call("scope", "create", "billing", "--description", "Invoices")
    assert terminal.call("scope", "archive", "billing").out == "scope billing is archived\n"
    rows = terminal.call("scope", "list").rows()
    assert ["billing", "archived", "Billing", "Invoices"] in rows
    assert terminal.call("scope", "unarchive", "billing").out == "scope billing is active\n"
    assert terminal.call("scope", "pause", "billing").out == "scope billing is paused\n"
    assert terminal.call("scope", "resume", "billing", "--json").json["state"] == "active"
    terminal.call("scope", "pause", "missing", code=1)
