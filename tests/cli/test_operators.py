"""What operators asked for in the trial: counts, pages, options, colors, completion."""

import os
import pty
import subprocess
from datetime import datetime

import pytest
from click.shell_completion import ShellComplete

from penstock.broker.local import Broker
from penstock.cli.commands import status
from penstock.cli.main import main
from penstock.cli.times import parse_time
from penstock.errors import InvalidInput
from penstock.model.message import Draft, Park
from tests.cli.consumer import kill, on_store, publish, take
from tests.cli.terminal import PENSTOCK, Terminal

NOON = datetime(2026, 11, 17, 12)
APP = """
from penstock import Penstock

app = Penstock()


@app.task(queue="mail")
def send(to): ...
"""


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2030-01-01T03:00", datetime(2030, 1, 1, 3)),
        ("2030-01-01 03:00:05", datetime(2030, 1, 1, 3, 0, 5)),
        ("2030-01-01", datetime(2030, 1, 1)),
        ("tomorrow", datetime(2026, 11, 18)),
        ("Tomorrow 09:30", datetime(2026, 11, 18, 9, 30)),
        ("today 18:00", datetime(2026, 11, 17, 18)),
    ],
)
def test_a_time_can_be_written_in_several_ways(text: str, time: datetime) -> None:
    assert parse_time(text, NOON) == time


def test_a_time_with_an_offset_keeps_it() -> None:
    assert parse_time("2030-01-01T03:00Z").utcoffset() is not None


@pytest.mark.parametrize("text", ["soon", "tomorrow noon", "2030-13-01", ""])
def test_a_wrong_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput, match="write it like 2030-01-01T03:00"):
        parse_time(text, NOON)


def test_jobs_run_later_by_time_or_by_delay(terminal: Terminal) -> None:
    terminal.call("enqueue", "--command", "true", "--run-at", "2030-01-01T03:00")
    terminal.call("enqueue", "--command", "true", "--delay", "5m")
    terminal.call("enqueue", '{"command": "true", "delay": "1h30m"}')
    assert terminal.states() == {"1": "scheduled", "2": "scheduled", "3": "scheduled"}
    assert "in 5m" in terminal.call("list").out


def test_common_options_may_stand_before_the_command(terminal: Terminal) -> None:
    publish()
    after = terminal.call("status", "--url", "sqlite:///penstock.db", "--json").json
    assert terminal.call("--url", "sqlite:///penstock.db", "--json", "status").json == after
    assert "no store" in terminal.call("--url", "sqlite:///x.db", "status", code=3).err
    assert terminal.call("--scope", "other", "status", "--json").json["queues"] == []


def test_a_count_that_stops_is_marked(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        publish()

        async def work(broker: Broker) -> None:
            await broker.complete(await take(broker))

        on_store(work)
    assert ["default", "active", "0", "0", "0", "0", "3"] in terminal.call("status").rows()
    monkeypatch.setattr(status, "MAX_ENDED_COUNTED", 2)
    said = terminal.call("status")
    assert ["default", "active", "0", "0", "0", "0", "2+"] in said.rows()
    found = terminal.call("status", "--json").json
    assert (found["ended_counted"], found["truncated"]) == (2, True)


def test_a_page_of_dead_letters_says_how_many_there_are(terminal: Terminal) -> None:
    for _ in range(5):
        publish()
    kill(count=5)
    said = terminal.call("dlq", "list", "--limit", 2)
    assert said.out.endswith("\n2 of 5; older ones: --before 4, or a larger --limit\n")
    said = terminal.call("dlq", "list", "--limit", 3, "--before", 4)
    assert [row[0] for row in said.rows()] == ["3", "2", "1"]
    assert "older ones" not in terminal.call("dlq", "list").out
    assert len(terminal.call("dlq", "list", "--json", "--limit", 2).lines) == 2


def test_dead_letters_are_chosen_by_error_and_tried_out(terminal: Terminal) -> None:
    publish()
    kill("timeout of smtp")
    publish()
    kill("no such user")
    said = terminal.call("dlq", "retry", "--all", "--error", "smtp", "--dry-run")
    assert said.out == "1 would be retried\n"
    assert terminal.states() == {"1": "dead", "2": "dead"}
    terminal.call("dlq", "retry", "--all", "--error", "smtp")
    assert terminal.states() == {"1": "ready", "2": "dead"}


def test_every_row_of_the_audit_log_names_its_message(terminal: Terminal) -> None:
    for _ in range(2):
        publish()
    kill(count=2)
    terminal.call("dlq", "purge", "--all", "--yes")
    rows = terminal.call("audit", "--json").lines
    assert sorted(row["target"] for row in rows if row["verb"] == "dlq purge") == ["1", "2"]
    assert "dlq purge" in terminal.call("audit").out


def test_show_says_why_a_message_waits(terminal: Terminal) -> None:
    publish(ordering_key="k", labels={"customer": "7"}, timeout=5.0, max_attempts=9)
    publish(ordering_key="k")
    terminal.call("queue", "pause", "default")
    first, second = terminal.call("show", 1).out, terminal.call("show", 2).out
    assert "(queue is paused)" in first
    assert "0 of 9" in first
    assert "customer=7" in first
    assert "5s" in first
    assert "scheduled (due after 1)" in second
    assert terminal.call("show", 2, "--json").json["blocked_by"] == "1"
    assert "after 1" in terminal.call("list").out


def test_a_parked_message_says_why(terminal: Terminal) -> None:
    publish()

    async def work(broker: Broker) -> None:
        await broker.settle(await take(broker), Park())

    on_store(work)
    assert "UNKNOWN_TASK" in terminal.call("list").out
    assert "UNKNOWN_TASK" in terminal.call("show", 1).out


def test_several_queues_are_paused_at_once_or_none(terminal: Terminal) -> None:
    publish()
    terminal.call("queue", "create", "mail")
    assert "no queue" in terminal.call("queue", "pause", "default", "nope", code=1).err
    said = terminal.call("queue", "pause", "default", "mail")
    assert said.out == "default is paused\nmail is paused\n"


def test_waiting_messages_are_purged(terminal: Terminal) -> None:
    publish()
    publish(delay=60)
    kill()
    publish()
    said = terminal.call("queue", "purge", "default", "--yes")
    assert said.out == "2 purged\n"
    assert terminal.states() == {"1": "dead", "2": "cancelled", "3": "cancelled"}


def test_a_shell_job_is_scheduled(terminal: Terminal) -> None:
    cron = ("--cron", "0 3 * * *")
    said = terminal.call("schedule", "create", "backup", *cron, "--command", "echo hi")
    assert said.out.startswith("backup runs next at 20")
    terminal.call("schedule", "run", "backup")
    shown = terminal.call("show", 1, "--json").json
    assert (shown["queue"], shown["body"]) == ("shell", {"command": "echo hi"})
    terminal.call("schedule", "create", "r", *cron, "--type", "report", "--missed", "skip")
    (first, second) = terminal.call("schedule", "list", "--json").lines
    assert {first["queue"], second["queue"]} == {"shell", "default"}
    terminal.call("schedule", "create", "x", *cron, code=2)


def test_send_takes_the_options_of_a_task(terminal: Terminal) -> None:
    terminal.write("shop.py", APP)
    send = ("send", "shop.send", "a", "--app", "shop:app")
    terminal.run(*send, "--delay", "5m", "--priority", 3, "--unique", "a", "--key", "k")
    terminal.run(*send, "--delay", "5m", "--unique", "a")
    (found,) = terminal.call("list", "--json").lines
    assert (found["state"], found["priority"], found["queue"]) == ("scheduled", 3, "mail")
    terminal.run(*send, "--queue", "other")
    assert terminal.call("list", "--json", "--queue", "other").lines


def complete(*words: str) -> list[str]:
    completer = ShellComplete(main, {}, "penstock", "_PENSTOCK_COMPLETE")
    return [item.value for item in completer.get_completions(list(words[:-1]), words[-1])]


def test_queues_are_completed(terminal: Terminal) -> None:
    publish()
    terminal.call("queue", "create", "mail")
    assert complete("queue", "pause", "ma") == ["mail"]
    assert complete("list", "--queue", "") == ["default", "mail"]
    assert complete("--url", "sqlite:///nowhere.db", "queue", "pause", "") == []


def test_tables_have_colors_on_a_terminal_only(terminal: Terminal) -> None:
    publish()
    kill()
    assert "\x1b[" not in terminal.run("status").out
    assert "\x1b[31m" in on_a_terminal(terminal, "status")
    assert "\x1b[" not in on_a_terminal(terminal, "status", NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal(terminal, "status", "--json")


def on_a_terminal(terminal: Terminal, *words: str, **environment: str) -> str:
    master, slave = pty.openpty()
    try:
        env = {**terminal.environment, "TERM": "xterm", **environment}
        subprocess.run([PENSTOCK, *words], cwd=terminal.folder, env=env, stdout=slave, check=True)
        return os.read(master, 65_536).decode()
    finally:
        os.close(master)
        os.close(slave)


def test_a_worker_that_renews_its_registration_is_seen_now(terminal: Terminal) -> None:
    publish()

    async def work(broker: Broker) -> None:
        from penstock.model.store_types import WorkerInfo

        await broker.store.save_worker(WorkerInfo("w", "elsewhere", 1, ("default",)))
        await broker.publish(Draft())

    on_store(work)
    (row,) = terminal.call("worker", "list").rows()
    assert row[-2] == "now"
