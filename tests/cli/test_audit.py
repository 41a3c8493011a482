"""The audit log on the command line: filters, verification and seals."""

import sqlite3

import pytest

from tests.cli.terminal import Terminal


def create_queues(terminal: Terminal, *names: str) -> None:
    for name in names:
        terminal.call("queue", "create", name)


def change_log(terminal: Terminal, statement: str) -> None:
    with sqlite3.connect(terminal.folder / "penstock.db") as connection:
        connection.execute(statement)
    connection.close()


def test_the_log_is_filtered_by_verb_target_and_time(terminal: Terminal) -> None:
    create_queues(terminal, "mail", "video")
    terminal.call("queue", "pause", "mail")
    assert len(terminal.call("audit", "--json").lines) == 3
    assert len(terminal.call("audit", "list", "--target", "mail", "--json").lines) == 2
    (act,) = terminal.call("audit", "--verb", "queue pause", "--since", "-1h", "--json").lines
    assert act["target"] == "mail"
    assert terminal.call("audit", "--until", "-1h").out == "no audit entries\n"
    assert terminal.call("audit", "--refused").out == "no audit entries\n"
    assert "is not a time" in terminal.call("audit", "--since", "soon", code=1).err


def test_a_search_goes_on_past_one_look_and_says_where_it_stops(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_queues(terminal, *"abcdef")
    monkeypatch.setattr("penstock.broker.audit.PAGE_SIZE", 1)
    monkeypatch.setattr("penstock.broker.audit.MAX_SCANNED", 1)
    (act,) = terminal.call("audit", "--target", "b", "--json").lines
    assert act["target"] == "b"
    monkeypatch.setattr("penstock.cli.commands.audit.MAX_SEARCHES", 3)
    said = terminal.call("audit", "--target", "b")
    assert said.out == "no audit entries\n"
    assert "the search stopped at entry 4; continue with --before 4" in said.err
    assert terminal.call("audit", "--target", "b", "--before", 4, "--json").lines == [act]


def test_an_intact_log_is_verified(terminal: Terminal) -> None:
    create_queues(terminal, "mail", "video")
    seal = terminal.call("audit", "seal").out.strip()
    assert seal.startswith("2:")
    assert terminal.call("audit", "verify").out == "2 audit entries are intact up to seal 2\n"
    said = terminal.call("audit", "verify", "--from", seal, "--json").json
    assert (said["intact"], said["seal"], said["findings"]) == (True, seal, [])
    assert "is not NUMBER:HASH" in terminal.call("audit", "verify", "--from", "x", code=1).err


def test_an_entry_changed_by_hand_is_named(terminal: Terminal) -> None:
    create_queues(terminal, "mail", "video", "sms")
    terminal.call("audit", "seal")
    change_log(terminal, "UPDATE penstock_act SET subject = 'bob' WHERE target = 'video'")
    (finding,) = terminal.call("audit", "verify", "--json", code=4).json["findings"]
    assert finding == {"finding": "changed", "entry": "2", "seal": 2}
    assert "changed" in terminal.call("audit", "verify", code=4).out


def test_an_entry_removed_by_hand_is_named(terminal: Terminal) -> None:
    create_queues(terminal, "mail", "video")
    terminal.call("audit", "seal")
    change_log(terminal, "DELETE FROM penstock_act WHERE target = 'mail'")
    (finding,) = terminal.call("audit", "verify", "--json", code=4).json["findings"]
    assert finding == {"finding": "missing", "entry": "1", "seal": 1}
