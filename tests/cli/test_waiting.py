"""The commands `signal` and `steps`, and redriving from a step."""

import asyncio

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import After, Draft, SettleReject
from penstock.model.waiting import Hold, StepRecord, WaitPlan
from tests.cli.terminal import Terminal


async def leave_dead(url: str) -> int:
    """Leaves a dead letter with two steps."""
    async with Broker(await stores.open(url)) as broker:
        await broker.publish(Draft(queue="default"))
        (held,) = (await broker.claim("default", consumer="test")).messages
        for position, name in enumerate(("charge", "ship"), 1):
            step = StepRecord(name=name, key="1", position=position, body=b'"ok"')
            await broker.waits.save_step(held, step)
        await broker.settle(held, SettleReject("no truck"))
        return held.id


def test_steps_are_listed_and_forgotten_from_one_on(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    id = asyncio.run(leave_dead(f"sqlite:///{terminal.folder}/penstock.db"))
    assert [step["step"] for step in terminal.call("steps", id, "--json").json] == [
        "charge",
        "ship",
    ]
    assert "charge" in terminal.call("steps", id).out
    assert "charge" in terminal.call("show", id).out
    shown = terminal.call("show", id, "--json").json["steps"]
    assert shown == terminal.call("steps", id, "--json").json
    refused = terminal.call("redrive", id, "--from-step", "pay", code=1).err
    assert "it has: charge, ship" in refused
    terminal.call("redrive", id, "--from-step", "ship")
    assert [step["step"] for step in terminal.call("steps", id, "--json").json] == ["charge"]


def test_a_signal_is_stored_for_a_message(terminal: Terminal) -> None:
    id = terminal.call("enqueue", '{"id": "j1", "command": "true"}', "--json").json["id"]
    sent = terminal.call("signal", "shell/j1", "go", '{"dock": 4}', "--key", "k")
    assert sent.out == f"signal go stored for message {id}\n"
    again = terminal.call("signal", "shell/j1", "go", '{"dock": 4}', "--key", "k")
    assert again.out == f"message {id} already has this signal go\n"
    assert "must be 1 to 100" in terminal.call("signal", "shell/j1", "no good", code=1).err


async def leave_waiting(url: str) -> int:
    """Leaves a message that waits for a child."""
    async with Broker(await stores.open(url)) as broker:
        id = (await broker.publish(Draft())).id
        (held,) = (await broker.claim("default", consumer="test")).messages
        step = StepRecord(name="gather", key="1", kind="gather", position=1, done=False)
        hold = Hold(kind="after", after=After(entries=(0,)))
        child = Draft(parent_id=id)
        plan = WaitPlan(reason="after:1", holds=(hold,), children=(child,), children_step=step)
        await broker.waits.suspend(held, plan)
        return id


def test_a_message_is_cancelled_with_its_tree(terminal: Terminal) -> None:
    terminal.call("queue", "create", "mail")
    id = asyncio.run(leave_waiting(f"sqlite:///{terminal.folder}/penstock.db"))
    assert "after other messages" in terminal.call("list").out
    assert terminal.call("cancel", id, "--tree").out == f"{id} cancelled, 1 below it\n"
    assert terminal.call("show", id + 1, "--json").json["state"] == "cancelled"
    assert "is cancelled" in terminal.call("cancel", id, "--tree", code=1).err
    refused = terminal.call("cancel", "--tree", "--filter", "queue:mail", code=2).err
    assert "--tree cannot be used with --filter" in refused
