"""Human steps on the command line."""

from tests.cli.terminal import Terminal


def test_a_step_is_requested_by_a_pattern_and_decided(terminal: Terminal) -> None:
    spec = '{"title": "Refund {{amount}}?", "input": {"why": {}}, "self_approval": true}'
    assert terminal.call("pattern", "save", "refund", spec).out == (
        "pattern refund is saved as version 1\n"
    )
    made = terminal.call("inbox", "request", "--pattern", "refund", "--set", "amount=650", "--json")
    id = made.json["id"]
    assert "Refund 650?" in terminal.call("inbox").out
    terminal.call("inbox", "comment", id, "Which invoice?")
    shown = terminal.call("inbox", "show", id).out
    assert "Which invoice?" in shown
    assert "option  approve (approve)" in shown
    assert "asked   by " in shown
    assert "'maybe' is not an option" in terminal.call("decide", id, "maybe", code=1).err
    said = terminal.call("decide", id, "approve", "--input", "why=kind")
    assert said.out == f"human step {id} is decided: approve\n"
    assert "was decided as 'approve'" in terminal.call("decide", id, "reject", code=1).err
    assert terminal.call("inbox").out == "no open human steps\n"


def test_a_step_needs_a_pattern_or_a_spec(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    assert "give either --pattern or --spec" in terminal.call("inbox", "request", code=1).err
    assert "is not a JSON object" in terminal.call("inbox", "request", "--spec", "[", code=1).err
    assert "no human step with id 7" in terminal.call("inbox", "show", "7", code=1).err


def test_a_pattern_is_read_from_a_file(terminal: Terminal) -> None:
    terminal.write("refund.json", '{"title": "Refund {{amount}}?"}')
    saved = terminal.call("pattern", "save", "refund", "refund.json").out
    assert saved == "pattern refund is saved as version 1\n"
    terminal.write("refund.json", "refund")
    error = terminal.call("pattern", "save", "refund", "refund.json", code=1).err
    assert "refund.json is not a JSON object" in error


def test_a_webhook_about_steps_is_added_listed_and_deleted(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    to = "https://example.org/hook"
    said = terminal.call("human-webhook", "add", "mail", "--to", to, "--links").out
    assert said == "webhook mail created\n"
    assert "already exists" in terminal.call("human-webhook", "add", "mail", "--to", to, code=1).err
    listed = terminal.call("human-webhook", "list", "--json").json
    assert (listed["name"], listed["url"], listed["links"]) == ("mail", to, True)
    assert terminal.call("human-webhook", "delete", "mail").out == "webhook mail deleted\n"
    assert "no webhooks" in terminal.call("human-webhook", "list").out


def test_the_audit_log_names_what_a_person_saw(terminal: Terminal) -> None:
    spec = '{"title": "Refund?", "self_approval": true}'
    id = terminal.call("inbox", "request", "--spec", spec, "--json").json["id"]
    terminal.call("decide", id, "approve")
    (act,) = [
        act
        for act in terminal.call("audit", "--json").lines
        if "spec_digest" in (act.get("changes") or {})
    ]
    assert act["changes"]["choice"] == [None, "approve"]
