"""Queues, their settings by both names, and schedules."""

import pytest

from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.model.queue import Schedule
from penstock.model.settings import PRESETS
from tests.cli.consumer import on_store, publish
from tests.cli.terminal import Terminal


def test_a_queue_is_made_with_a_preset_and_settings(terminal: Terminal) -> None:
    said = terminal.call(
        *("queue", "create", "tasks", "--preset", "codeq", "max_attempts=9", "backoff.initial=5"),
        "--json",
    )
    assert (said.json["name"], said.json["state"]) == ("tasks", "active")
    settings = said.json["settings"]
    assert (settings["max_attempts"], settings["lease"], settings["clamp"]) == (9, 300, True)
    assert (settings["backoff"]["initial"], settings["backoff"]["max"]) == (5, 900)
    assert "tasks: active\n" in terminal.call("queue", "show", "tasks").out


def test_settings_are_changed_by_either_spelling(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    terminal.call("queue", "set", "mail", "max-attempts=2", "max_depth=10", "overflow=dead")
    settings = terminal.call("queue", "show", "mail", "--json").json["settings"]
    assert (settings["max_attempts"], settings["max_depth"], settings["overflow"]) == (
        2,
        10,
        "dead",
    )
    terminal.call("queue", "set", "mail", "max_depth=null", "lease=2m", "backoff.max=1h30m")
    settings = terminal.call("queue", "show", "mail", "--json").json["settings"]
    assert (settings["lease"], settings["backoff"]["max"]) == (120, 5_400)
    assert terminal.call("queue", "show", "mail", "--json").json["settings"]["max_depth"] is None


def test_the_list_of_queues_counts_what_is_in_them(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail", "ordering=fifo")
    publish(queue="mail")
    said = terminal.call("queue", "list")
    assert ["mail", "active", "fifo", "5", "30s", "1", "0", "0", "0"] in said.rows()
    lines = {each["name"]: each for each in terminal.call("queue", "list", "--json").lines}
    assert lines["mail"]["counts"]["ready"] == 1
    assert "_dead_letter" not in lines


def test_the_switches_of_a_queue(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail", "pause_accepts=false")
    for verb, state in (
        ("pause", "paused"),
        ("drain", "draining"),
        ("archive", "archived"),
        ("resume", "active"),
    ):
        assert terminal.call("queue", verb, "mail").out == f"mail is {state}\n"
        assert terminal.call("queue", "show", "mail", "--json").json["state"] == state


def test_a_paused_shell_queue_says_how_to_go_on(terminal: Terminal) -> None:
    terminal.call("enqueue", '{"command":"true"}')
    terminal.call("queue", "drain", "shell")
    said = terminal.call("enqueue", '{"command":"true"}', code=1)
    assert said.err == (
        "penstock: queue 'shell' is draining; run `penstock queue resume` to reactivate it\n"
    )


def test_a_queue_is_deleted_when_it_is_empty_or_by_force(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    publish(queue="mail")
    assert terminal.call("queue", "delete", "mail", code=1).err == (
        "penstock: queue 'mail' has unfinished messages;"
        " run `penstock queue delete --force` to cancel them first\n"
    )
    assert terminal.call("queue", "delete", "mail", "--force").out == "queue mail deleted\n"
    assert "no queue named 'mail'" in terminal.call("queue", "show", "mail", code=1).err


BAD = {
    "a name that is taken": (["create", "default"], "default"),
    "a wrong name": (["create", "a b"], "'a b'"),
    "a system's name": (["create", "_mine"], "are reserved"),
    "an unknown preset": (["create", "x", "--preset", "nope"], "no preset named 'nope'"),
    "an unknown setting": (
        ["set", "default", "nope=1"],
        "unknown setting 'nope'; valid settings are ordering, ",
    ),
    "a setting without a value": (["set", "default", "lease"], "must have the form name=value"),
    "a setting out of range": (["set", "default", "lease=0"], "lease is 0"),
    "a setting of another type": (["set", "default", "lease=long"], "lease"),
    "what is not built": (["set", "default", "ordering=fair"], "not supported yet"),
    "an unknown queue": (["pause", "emials"], "no queue named 'emials'"),
}


@pytest.mark.parametrize(("words", "told"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_with_a_queue_is_said(
    terminal: Terminal, words: list[str], told: str
) -> None:
    publish()
    said = terminal.call("queue", *words, code=1)
    assert told in said.err
    assert said.err.count("\n") == 1


def test_an_unknown_queue_is_answered_with_the_most_similar_name(terminal: Terminal) -> None:
    terminal.call("queue", "create", "emails")
    said = terminal.call("queue", "show", "emials", code=1)
    assert said.err == "penstock: no queue named 'emials'; did you mean 'emails'?\n"


def test_config_speaks_of_the_shell_queue(terminal: Terminal) -> None:
    terminal.call("config", "set", "max-retries", 7)
    terminal.call("config", "set", "backoff-base", 1.5)
    terminal.call("config", "set", "retention", "30d")
    terminal.call("config", "set", "max-depth", 100)
    assert terminal.call("config", "get", "--json").json == {
        "max-retries": 7,
        "backoff-base": 1.5,
        "backoff-max": 3600.0,
        "poll-interval": 1.0,
        "lease": 30.0,
        "max-depth": 100,
        "retention": 30 * 86_400.0,
    }
    assert terminal.call("config", "set", "max-depth", "null").out == (
        "max-depth is now none in queue shell\n"
    )
    assert terminal.call("config", "get").out.startswith(
        "settings of queue shell\n  max-retries    7\n"
    )


def test_config_of_a_store_without_shell_jobs_is_that_of_a_new_shell_queue(
    terminal: Terminal,
) -> None:
    publish()
    found = terminal.call("config", "get", "--json").json
    assert (found["lease"], found["max-retries"]) == (30.0, PRESETS["queuectl"].max_attempts)
    assert "shell" not in terminal.call("queue", "list").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["set", "colour", "red"], "unknown setting 'colour'; valid settings are max-retries, "),
        (["get", "colour"], "unknown setting 'colour'"),
        (["set", "max-retries", "many"], "max-retries: 'many' is not a number"),
        (["set", "max-retries", "0"], "max-retries: max_attempts is 0"),
        (["set", "max-retries", "1.5"], "max_attempts"),
        (["set", "lease", "soon"], "duration 'soon'"),
        (["get", "--queue", "emials"], "no queue named 'emials'"),
    ],
)
def test_a_wrong_setting_is_refused(terminal: Terminal, words: list[str], told: str) -> None:
    publish()
    said = terminal.call("config", *words, code=1)
    assert told in said.err


@pytest.fixture
def scheduled(terminal: Terminal) -> Terminal:
    async def work(broker: Broker) -> None:
        draft = Draft(type="report")
        await broker.admin.schedule(Schedule("report", "0 9 * * *", draft, "Europe/Rome"))

    on_store(work)
    return terminal


def test_schedules_are_listed_paused_run_and_deleted(scheduled: Terminal) -> None:
    (row,) = scheduled.call("schedule", "list", "--json").lines
    assert (row["name"], row["queue"], row["cron"], row["paused"]) == (
        "report",
        "default",
        "0 9 * * *",
        False,
    )
    assert scheduled.call("schedule", "pause", "report").out == "report is paused\n"
    assert "paused" in scheduled.call("schedule", "list").out
    assert scheduled.call("schedule", "resume", "default/report").out == "report is active\n"
    assert scheduled.call("schedule", "run", "report", "--json").json["id"] == "1"
    assert scheduled.state("1") == "ready"
    scheduled.call("schedule", "delete", "report")
    assert scheduled.call("schedule", "list").out == "no schedules\n"
    assert "no schedule named 'report'" in scheduled.call("schedule", "run", "report", code=1).err


def test_a_name_that_two_queues_have_is_asked_about(scheduled: Terminal) -> None:
    scheduled.call("queue", "create", "mail")

    async def work(broker: Broker) -> None:
        await broker.admin.schedule(Schedule("report", "0 9 * * *", Draft(queue="mail")))

    on_store(work)
    said = scheduled.call("schedule", "pause", "report", code=1)
    assert "default/report, mail/report" in said.err
    scheduled.call("schedule", "pause", "mail/report")
    paused = {
        each["queue"]: each["paused"] for each in scheduled.call("schedule", "list", "--json").lines
    }
    assert paused == {"default": False, "mail": True}


def test_a_paused_scope_is_named_by_every_command(terminal: Terminal) -> None:
    publish()
    on_store(lambda broker: broker.admin.pause_scope("default"))
    (row,) = [row for row in terminal.call("queue", "list").rows() if row[0] == "default"]
    assert row[1] == "paused"
    assert (
        "default: active, and its scope is paused" in terminal.call("queue", "show", "default").out
    )
    assert terminal.call("queue", "show", "default", "--json").json["scope_paused"] is True
    (counted,) = terminal.call("status", "--json").json["queues"]
    assert (counted["state"], counted["scope_paused"]) == ("paused", True)
    assert "the scope is paused; resume it with POST /v1/scopes/NAME/resume" in (
        terminal.call("status").out
    )
