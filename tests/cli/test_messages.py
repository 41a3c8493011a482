"""list, show and cancel: what people read, what programs read, and what is not there."""

import json

import pytest

from penstock.broker.local import Broker
from penstock.model.message import Fail, Nack
from tests.cli.consumer import kill, on_store, publish, take
from tests.cli.terminal import Terminal

LONG = "it went wrong " * 20


def test_the_list_is_readable_on_80_columns(terminal: Terminal) -> None:
    publish(name="a-rather-long-name-of-a-job", type="shop.tasks.send_mail")
    kill(LONG)
    publish(delay=600)
    said = terminal.call("list")
    heading, *rows = said.out.splitlines()
    assert heading.split() == [
        *("ID", "NAME", "QUEUE", "TYPE", "STATE", "ATTEMPTS", "DUE", "AGE", "ERROR"),
    ]
    assert "a-rather-long-name-of-a-job" in rows[1]
    assert "shop.tasks.send_mail" in rows[1]
    assert rows[1].endswith("it went wrong i…")
    assert "in 10m" in rows[0]


def test_columns_that_hold_nothing_are_not_shown(terminal: Terminal) -> None:
    publish()
    heading, row = terminal.call("list").out.splitlines()
    assert heading.split() == ["ID", "QUEUE", "TYPE", "STATE", "ATTEMPTS", "AGE"]
    assert row.split()[:5] == ["1", "default", "shop.send", "ready", "0"]


def test_the_list_is_filtered_and_paged(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    for queue in ("default", "mail", "mail"):
        publish(queue=queue)
    publish(queue="mail", type="other", delay=60)

    def ids(*words: object) -> list[str]:
        return [each["id"] for each in terminal.call("list", "--json", *words).lines]

    assert ids() == ["4", "3", "2", "1"]
    assert ids("--queue", "mail") == ["4", "3", "2"]
    assert ids("--type", "other") == ["4"]
    assert ids("--state", "ready") == ["3", "2", "1"]
    assert ids("--limit", 2) == ["4", "3"]
    assert ids("--limit", 2, "--before", 3) == ["2", "1"]


def test_more_than_one_page_of_the_store_is_listed(terminal: Terminal) -> None:
    lines = "\n".join(json.dumps({"command": "true"}) for _ in range(450))
    terminal.call("enqueue", "-", stdin=lines)
    assert len(terminal.call("list", "--json", "--limit", 430).lines) == 430


def test_one_object_a_line_has_the_same_fields_always(terminal: Terminal) -> None:
    publish(priority=3)
    assert terminal.call("list", "--json").json == {
        "id": "1",
        "name": None,
        "queue": "default",
        "type": "shop.send",
        "state": "ready",
        "priority": 3,
        "attempts": 0,
        "deliveries": 0,
        "created_at": terminal.call("show", 1, "--json").json["created_at"],
        "due_at": None,
        "reason": None,
        "error": None,
        "consumer": None,
        "claimed_at": None,
        "begun_at": None,
        "percent": None,
        "note": None,
    }


def test_show_tells_the_whole_story(terminal: Terminal) -> None:
    publish(name="mine", correlation_id="c-7", headers={"a": "b"})

    async def work(broker: Broker) -> None:
        await broker.settle(await take(broker), Nack("try again", 0.0))
        held = await take(broker)
        await broker.progress(held, 40, "half-way")

    on_store(work)
    said = terminal.call("show", "default/mine")
    assert "state        claimed (running for " in said.out
    assert " by test, lease ends in " in said.out
    assert "progress     40 % half-way" in said.out
    assert "correlation  c-7" in said.out
    assert "attempts     1 of 5" in said.out
    assert "deliveries   2 of 8" in said.out
    assert "lease        30s" in said.out
    assert "headers      a=b" in said.out
    assert 'body         {"n":1}' in said.out
    assert said.out.splitlines()[-1].split()[2:5] == ["nack", "ready", "1"]
    shown = terminal.call("show", 1, "--json").json
    assert shown["body"] == {"n": 1}
    assert (shown["percent"], shown["note"], shown["headers"]) == (40, "half-way", {"a": "b"})
    (row,) = shown["timeline"]
    assert (row["verb"], row["state"], row["error"]) == ("nack", "ready", "try again")


def test_a_body_that_is_no_text_is_shown_in_hex(terminal: Terminal) -> None:
    publish(body=b"\xff\x00")
    assert terminal.call("show", 1, "--json").json["body"] == "ff00"
    assert "body        ff00" in terminal.call("show", 1).out


def test_nothing_in_a_message_steers_the_terminal(terminal: Terminal) -> None:
    publish(body=b'"\x1b[31mred"')
    kill("\x1b]0;title\x07 and\nmore")
    for words in (["list"], ["dlq", "list"], ["show", "1"]):
        assert "\x1b" not in terminal.call(*words).out
    assert terminal.call("list").out.count("\n") == 2


def test_a_terminal_that_knows_few_letters_is_shown_the_rest_in_another_way(
    terminal: Terminal,
) -> None:
    terminal.call("enqueue", '{"id":"j1","command":"echo ü"}')
    said = terminal.run("show", "j1", PYTHONIOENCODING="ascii")
    assert 'body        {"command":"echo \\xfc"}' in said.out


def test_show_of_a_message_that_is_not_there(terminal: Terminal) -> None:
    publish()
    for reference, told in (
        ("99", "no message with id 99; run `penstock list` to see what exists"),
        ("default/x", "no message named 'x' in queue 'default'"),
        ("j1", "no message 'j1' in queue 'shell'; use an id or queue/name"),
        ("mail/x", "no queue named 'mail'; run `penstock queue list` to see what exists"),
    ):
        assert told in terminal.call("show", reference, code=1).err


def test_output_of_a_job_that_never_ran_is_not_there(terminal: Terminal) -> None:
    publish()
    assert "no output of message 1" in terminal.call("show", 1, "--output", code=1).err


def test_cancel_ends_what_waits_and_asks_what_runs(terminal: Terminal) -> None:
    publish(priority=1)
    publish()
    on_store(take)
    said = terminal.call("cancel", 1, 2)
    assert said.out == "1 cancellation requested\n2 cancelled\n"
    assert terminal.call("cancel", 1, "--force", "--json").json == {"id": "1", "state": "cancelled"}
    refused = terminal.call("cancel", 1, code=1).err
    assert refused == (
        "penstock: message 1 is cancelled, which does not allow this operation;"
        " run `penstock show` to see its history\n"
    )


def test_redrive_puts_ended_messages_back(terminal: Terminal) -> None:
    publish()
    kill()
    assert terminal.call("redrive", 1).out == "1 redriven\n"

    async def fail(broker: Broker) -> None:
        await broker.settle(await take(broker), Fail("no"))

    on_store(fail)
    assert terminal.call("redrive", 1, "--json").json == {
        "redriven": 1,
        "ids": ["2"],
        "errors": [],
    }
    assert terminal.call("show", 2, "--json").json["parent_id"] == "1"


def test_redrive_with_another_body_replaces_a_dead_letter(terminal: Terminal) -> None:
    publish()
    kill()
    terminal.call("redrive", 1, "--body", '{"n":2}')
    assert terminal.state("1") == "cancelled"
    assert terminal.call("show", 2, "--json").json["body"] == {"n": 2}


def test_redrive_by_filter_takes_only_what_fits(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    for queue in ("default", "mail"):
        publish(queue=queue)

        async def fail(broker: Broker, queue: str = queue) -> None:
            await broker.settle(await take(broker, queue), Fail("no"))

        on_store(fail)
    said = terminal.call("redrive", "--all", "--state", "failed", "--queue", "mail", "--rate", 100)
    assert said.out == "1 redriven, as 3\n"
    assert terminal.states() == {"1": "failed", "2": "failed", "3": "ready"}


@pytest.mark.parametrize("words", [["redrive"], ["redrive", "1", "--all"]])
def test_redrive_of_nothing_named_is_wrong_usage(terminal: Terminal, words: list[str]) -> None:
    assert "Give messages, or --all" in terminal.call(*words, code=2).err


def test_the_list_is_searched_by_a_filter(terminal: Terminal) -> None:
    for number in range(3):
        publish(body=b'{"n": %d}' % number, labels={"tier": "gold"})
    kill("TimeoutError: too slow")

    def ids(*words: object) -> list[str]:
        return [each["id"] for each in terminal.call(*words, "--json").lines]

    assert ids("list", "--filter", "label.tier:gold body.n>=1", "--state", "ready") == ["2", "3"]
    assert ids("dlq", "list", "--filter", "error.kind:TimeoutError") == ["1"]
    assert ids("dlq", "list", "--filter", "error.kind:ValueError") == []
    said = terminal.call("list", "--filter", "label.tier:gold", "--limit", "1")
    cursor = said.out.split("--cursor ")[1].strip()
    assert ids("list", "--filter", "label.tier:gold", "--cursor", cursor) == ["2", "1"]


def test_a_mistake_in_a_filter_is_named(terminal: Terminal) -> None:
    publish()
    said = terminal.call("list", "--filter", "state:dad", code=1)
    assert "'dad' is not a state at 7; did you mean 'dead'?" in said.err
    assert "--cursor needs --filter" in terminal.call("list", "--cursor", "x", code=2).err
    assert "use --cursor" in terminal.call("list", "--filter", "id:1", "--before", "2", code=2).err
