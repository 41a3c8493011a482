"""Dead letters: one, many, by filter, at a rate; and nothing that is not dead."""

import pytest

from penstock.broker.local import Broker
from penstock.model.message import Draft
from tests.cli.consumer import kill, on_store, publish
from tests.cli.terminal import Terminal


@pytest.fixture
def dead(terminal: Terminal) -> Terminal:
    """Three dead letters of two types, and a message that is not dead."""
    for type in ("mail", "mail", "report"):
        publish(type=type)
        kill(f"no {type}")
    publish(type="mail")
    return terminal


def test_dead_letters_are_listed_with_why_they_died(dead: Terminal) -> None:
    said = dead.call("dlq", "list")
    assert said.out.splitlines()[0].split() == [
        *("ID", "QUEUE", "TYPE", "ATTEMPTS", "AGE", "REASON", "ERROR"),
    ]
    assert [row[0] for row in said.rows()] == ["3", "2", "1"]
    assert said.out.splitlines()[1].endswith("rejected  no report")
    assert [each["id"] for each in dead.call("dlq", "list", "--type", "mail", "--json").lines] == [
        "2",
        "1",
    ]


def test_no_dead_letters_is_said(terminal: Terminal) -> None:
    publish()
    assert terminal.call("dlq", "list").out == "no dead letters\n"
    assert terminal.call("dlq", "list", "--json").out == ""


def test_dlq_show_is_show(dead: Terminal) -> None:
    assert dead.call("dlq", "show", 1, "--json").out == dead.call("show", 1, "--json").out


def test_named_letters_are_retried_and_others_stay(dead: Terminal) -> None:
    assert dead.call("dlq", "retry", 1, 3).out == "2 retried\n"
    assert dead.states() == {"1": "ready", "2": "dead", "3": "ready", "4": "ready"}


def test_one_that_is_not_dead_does_not_stop_the_others(dead: Terminal) -> None:
    said = dead.call("dlq", "retry", 4, 99, 1, "--json", code=1)
    assert said.json["ids"] == ["1"]
    assert said.json["errors"] == ["message 4 is ready, not dead", "no message with id 99"]


def test_retry_all_keeps_to_its_filter_and_limit(dead: Terminal) -> None:
    assert dead.call("dlq", "retry", "--all", "--type", "mail", "--limit", 1).out == "1 retried\n"
    assert dead.call("dlq", "retry", "--all", "--queue", "default", "--rate", 50).out == (
        "2 retried\n"
    )
    assert set(dead.states().values()) == {"ready"}


def test_a_retry_of_many_is_complete_and_in_their_order(terminal: Terminal) -> None:
    async def work(broker: Broker) -> None:
        await broker.publish_many([Draft()] * 250)

    on_store(work)
    kill(count=250)
    said = terminal.call("dlq", "retry", "--all", "--json").json
    assert said["ids"] == [str(n) for n in range(1, 251)]
    assert terminal.call("dlq", "list").out == "no dead letters\n"


def test_purge_ends_those_named(dead: Terminal) -> None:
    assert dead.call("dlq", "purge", 1).out == "1 purged\n"
    assert dead.states() == {"1": "cancelled", "2": "dead", "3": "dead", "4": "ready"}
    assert "not dead" in dead.call("dlq", "purge", 4, code=1).err


def test_purge_of_all_asks_first(dead: Terminal) -> None:
    said = dead.call("dlq", "purge", "--all", "--type", "mail", stdin="n\n", code=1)
    assert "End 2 dead letters as cancelled? [y/N]" in said.err
    assert dead.states()["1"] == "dead"
    dead.call("dlq", "purge", "--all", "--type", "mail", "--yes")
    assert dead.states() == {"1": "cancelled", "2": "cancelled", "3": "dead", "4": "ready"}


@pytest.mark.parametrize("verb", ["retry", "purge"])
def test_nothing_named_is_wrong_usage(dead: Terminal, verb: str) -> None:
    assert "Give messages, or --all" in dead.call("dlq", verb, code=2).err
    assert "--rate" in dead.call("dlq", verb, "--all", "--rate", 0, code=2).err
