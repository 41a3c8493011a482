"""Commands that act on all messages of a filter, and those for bulk actions."""

import os
import pty
import signal

import pytest

from penstock.cli.bulk_actions import RATE
from tests.cli.consumer import kill, publish
from tests.cli.terminal import WAIT_LIMIT_S, Terminal


@pytest.fixture
def mail(terminal: Terminal) -> Terminal:
    """Five ready messages, and a queue to move them to."""
    terminal.call("queue", "create", "other")
    for number in range(1, 6):
        terminal.call("enqueue", f'{{"id": "j{number}", "command": "true"}}')
    return terminal


def test_a_filter_cancels_what_matches(mail: Terminal) -> None:
    assert mail.call("cancel", "--filter", "queue:shell id<=3", "--dry-run").out == (
        "3 would be cancelled\n"
    )
    assert mail.call("cancel", "--filter", "queue:shell id<=3").out == "3 cancelled\n"
    assert sorted(mail.states().values()) == ["cancelled"] * 3 + ["ready"] * 2
    assert mail.call("cancel", "--filter", "queue:shell id<=3").out == (
        "0 cancelled; skipped: 3 cancelled\n"
    )


def test_actions_are_listed_shown_and_controlled(mail: Terminal) -> None:
    asked = ("purge", "--filter", "queue:shell", "--detach", "--rate", "2/s", "--name", "spring")
    assert "bulk action  1\nname         spring\n" in mail.call(*asked).out
    assert mail.call("bulk", "list", "--json").json["state"] == "running"
    assert mail.call("bulk", "pause", 1, "--json").json["reason"] == "requested"
    assert "paused" in mail.call("bulk", "attach", 1, code=1).err
    assert mail.call("bulk", "resume", 1, "--json").json["state"] == "running"
    assert mail.call("bulk", "abort", 1, "--json").json["state"] == "aborted"
    assert "spring" in mail.call("bulk", "list").out
    assert "state        aborted" in mail.call("bulk", "show", 1).out
    refused = mail.call("bulk", "resume", 1, code=1).err
    assert "bulk action 1 is aborted; it cannot be resumed" in refused
    assert "penstock bulk list" in mail.call("bulk", "show", 2, code=1).err


def test_attach_does_the_work_if_no_other_process_does(mail: Terminal) -> None:
    mail.call("purge", "--filter", "queue:shell", "--detach")
    assert mail.call("bulk", "attach", 1).out == "5 purged\n"


def test_attach_shows_progress_and_ctrl_c_leaves_the_action_running(mail: Terminal) -> None:
    mail.call("purge", "--filter", "queue:shell", "--detach", "--rate", "1/m")
    screen, stderr = pty.openpty()
    with (
        open(screen, encoding="utf-8", newline="") as shown,
        mail.start("bulk", "attach", 1, stderr=stderr) as attached,
    ):
        text = ""
        while " 1 done, " not in text:
            text += shown.read(1)
        attached.send_signal(signal.SIGINT)
        assert attached.wait(WAIT_LIMIT_S) == 130
        while "penstock bulk abort 1" not in text:
            text += shown.read(1)
        os.close(stderr)
    assert "bulk 1  1 done, " in text
    assert mail.call("bulk", "show", 1, "--json").json["state"] == "running"
    assert sorted(mail.states().values()) == ["cancelled"] + ["ready"] * 4


def test_a_long_dry_run_says_so_wherever_it_is_shown(
    mail: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.bulk.actions.MAX_SCANNED", 2)
    assert mail.call("purge", "--filter", "queue:shell", "--dry-run").out == "5 would be purged\n"
    assert "purge (dry run)" in mail.call("bulk", "list").out
    assert "would be done  5" in mail.call("bulk", "show", 1).out


def test_messages_are_moved_edited_and_reprioritised(terminal: Terminal) -> None:
    terminal.call("queue", "create", "first")
    terminal.call("queue", "create", "second")
    for queue in ("first", "first", "second"):
        publish(queue=queue)
    assert terminal.call("edit", 1, "--body", "new").out == "1 replaced, as 4\n"
    assert terminal.call("move", 4, "--to", "second").out == "1 moved, as 5\n"
    assert terminal.call("move", "--filter", "queue:first", "--to", "second").out == (
        "1 moved; skipped: 2 cancelled\n"
    )
    assert terminal.call("reprioritise", 5, "--priority", 9).out == "1 reprioritised\n"
    assert "is cancelled" in terminal.call("edit", 1, "--body", "x", code=1).err
    assert "no queue named 'none'" in terminal.call("move", 5, "--to", "none", code=1).err


def test_more_than_a_thousand_messages_are_asked_about(
    mail: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.bulk_actions.MAX_UNASKED", 4)
    said = mail.call("cancel", "--filter", "queue:shell", code=1)
    assert "5 messages will be cancelled. Continue? [y/N]" in said.err
    assert mail.call("cancel", "--filter", "queue:shell", "--yes").out == "5 cancelled\n"


@pytest.mark.parametrize(
    "words",
    [
        ("cancel",),
        ("cancel", "1", "--filter", "state:ready"),
        ("cancel", "1", "--dry-run"),
        ("cancel", "--filter", "state:ready", "--force"),
        ("cancel", "--filter", "state:ready", "--rate", "fast"),
        ("cancel", "--filter", "state:ready", "--rate", "0"),
        ("redrive", "1", "--filter", "state:dead"),
        ("redrive", "--all", "--filter", "state:dead"),
        ("move", "1"),
        ("reprioritise", "1"),
        ("bulk", "show", "x"),
    ],
)
def test_mixed_or_missing_selections_are_usage_errors(
    mail: Terminal, words: tuple[str, ...]
) -> None:
    mail.call(*words, code=2)
    assert set(mail.states().values()) == {"ready"}


def test_dead_letters_of_a_filter_are_redriven(terminal: Terminal) -> None:
    for _ in range(3):
        publish(type="mail")
        kill("no")
    said = terminal.call("redrive", "--filter", "state:dead", "--rate", "100/s")
    assert said.out == "3 redriven\n"
    assert set(terminal.states().values()) == {"ready"}


@pytest.mark.parametrize(
    ("text", "rate"), [("50", 50), ("50/s", 50), ("600/m", 10), ("36/h", 0.01)]
)
def test_a_rate_has_a_unit(text: str, rate: float) -> None:
    assert RATE.convert(text, None, None) == pytest.approx(rate)
