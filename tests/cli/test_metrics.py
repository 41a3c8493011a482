"""Metrics, consumers, anomalies and alerts on the command line."""

import pytest

from tests.cli.terminal import Terminal


def test_metrics_and_consumers_are_drawn(terminal: Terminal) -> None:
    for number in range(3):
        terminal.call("enqueue", f'{{"id": "j{number}", "command": "exit {number % 2}"}}')
    terminal.call("config", "set", "max_retries", "1")
    terminal.call("worker", "start", "--stop-when-empty")
    said = terminal.call("metrics", "shell").out
    lines = {line.split()[0]: line.split() for line in said.splitlines() if line.strip()}
    assert lines["published"][-3:-1] == ["3", "3"]
    assert "▁" in said
    found = terminal.call("metrics", "shell", "--json").json
    assert sum(point["completed"] for point in found["points"]) == 2
    (consumer,) = terminal.call("consumers", "--queue", "shell", "--json").json["consumers"]
    assert (consumer["completed"], consumer["failures"]) == (2, 1)
    assert terminal.call("consumers").out.startswith("CONSUMER")
    hours = terminal.call("metrics", "shell", "--step", "1h", "--since", "-3h", "--json").json
    assert len(hours["points"]) in (4, 5)
    assert hours["points"][-1]["run_p95"] is not None


def test_anomalies_are_listed_with_a_summary(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    assert terminal.call("anomalies").out == "no anomalies\n"
    assert terminal.call("anomalies", "--json").json == {
        "anomalies": [], "by_kind": {}, "by_severity": {}, "complete": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("metrics", "mail", "--step", "7s"), "whole minutes"),
        (("metrics", "nowhere"), "no queue named 'nowhere'"),
        (("metrics", "mail", "--since", "2999-01-01"), "in the future"),
        (("anomalies", "--kind", "nonsense"), "unknown anomaly nonsense"),
        (("alert", "add", "a", "--to", "ftp://example.org"), "url"),
        (("alert", "add", "a b", "--to", "https://example.org"), "alert name 'a b' is invalid"),
        (("alert", "show", "a"), "no alert named 'a'"),
        (("alert", "delete", "a"), "no alert named 'a'"),
    ],
)
def test_what_makes_no_sense_is_named(
    terminal: Terminal, words: tuple[str, ...], reason: str
) -> None:
    terminal.call("queue", "create", "mail")
    assert reason in terminal.call(*words, code=1).err


def test_an_alert_is_added_shown_and_deleted(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    words = ("alert", "add", "pager", "--to", "https://example.org/hook", "--queue", "mail*")
    terminal.call(*words, "--for", "2m", "--kind", "dlq_movement")
    assert "already exists" in terminal.call(*words, code=1).err
    shown = terminal.call("alert", "show", "pager", "--json").json
    assert (shown["queues"], shown["min_duration"], shown["sent"]) == (["mail*"], 120, 0)
    terminal.call("alert", "test", "pager")
    assert terminal.call("alert", "list").out.splitlines()[1].startswith("pager")
    terminal.call("alert", "delete", "pager")
    assert terminal.call("alert", "list").out == "no alerts\n"


def test_the_doctor_looks_at_the_limits_of_metrics(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    assert "no limit is exceeded" in terminal.call("doctor").out


def test_results_of_the_pipeline_are_printed_as_lines(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    assert terminal.call("pipeline", "results", "anomaly").out == ""
