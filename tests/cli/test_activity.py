"""Activity and traces on the command line."""

import asyncio
import json
from select import select

from penstock import Broker, Draft, stores
from penstock.model.message import SettleReject
from tests.cli.terminal import Terminal, until


async def work(url: str) -> None:
    """A story over two queues, of which the second message fails."""
    async with await stores.open(url) as store:
        broker = Broker(store)
        order = await broker.publish(Draft(queue="orders", type="order.new", correlation_id="c-1"))
        (held,) = (await broker.claim("orders", consumer="w1")).messages
        await broker.complete(held)
        await broker.publish(
            Draft(queue="mail", type="mail.send", correlation_id="c-1", parent_id=order.id)
        )
        (held,) = (await broker.claim("mail", consumer="w2")).messages
        await broker.settle(held, SettleReject("no such\x1b[31m address"))


def prepare(terminal: Terminal) -> None:
    for name in ("orders", "mail"):
        terminal.call("queue", "create", name)
    asyncio.run(work(f"sqlite:///{terminal.folder}/penstock.db"))


def test_activity_lists_history_and_acts(terminal: Terminal) -> None:
    prepare(terminal)
    said = terminal.call("activity", "--json").lines
    assert [(each["kind"], each.get("queue")) for each in said] == [
        ("message.dead", "mail"), ("message.completed", "orders"), ("act", "mail"),
        ("act", "orders"),
    ]  # fmt: skip
    assert said[1]["consumer"] == "w1"
    assert said[3]["verb"] == "queue create"
    dead = terminal.call("activity", "--filter", "error:address", "--limit", "1").rows()
    assert dead[0][2:7] == ["dead", "mail", "2", "mail.send", "w2"]
    assert terminal.call("activity", "--until", "-1h").out == "no activity\n"
    more = terminal.call("activity", "--limit", "1").out
    cursor = more.rpartition("--cursor ")[2].strip()
    rest = terminal.call("activity", "--cursor", cursor, "--json").lines
    assert rest == said[1:]
    assert "events do not carry size" in terminal.call("activity", "--filter", "size>1", code=1).err


def test_a_trace_is_a_tree_with_events(terminal: Terminal) -> None:
    prepare(terminal)
    said = terminal.call("trace", "c-1")
    tree, events = said.out.split("\n\n")
    assert [line.replace("└ ", "").split()[:4] for line in tree.splitlines()[1:]] == [
        ["1", "orders", "order.new", "completed"],
        ["2", "mail", "mail.send", "dead"],
    ]
    assert tree.splitlines()[2].startswith("└ 2")
    assert "\x1b" not in said.out
    assert [line.split()[1] for line in events.splitlines()[1:]] == [
        "published", "claimed", "completed", "published", "claimed", "dead",
    ]  # fmt: skip
    told = terminal.call("trace", "c-1", "--json").json
    assert [(each["id"], each["parent"]) for each in told["messages"]] == [("1", None), ("2", "1")]
    assert "no message with correlation id" in terminal.call("trace", "c-2", code=1).err


def test_activity_is_followed(terminal: Terminal) -> None:
    for name in ("orders", "mail"):
        terminal.call("queue", "create", name)
    with terminal.start("activity", "--follow", "--json", "--kind", "message.dead") as following:
        assert following.stdout is not None
        told = following.stdout
        url = f"sqlite:///{terminal.folder}/penstock.db"

        def is_told() -> bool:
            """Works until the command, which begins at the end of history, tells of it."""
            asyncio.run(work(url))
            return bool(select([told], [], [], 0)[0])

        until(is_told)
        assert json.loads(told.readline())["kind"] == "message.dead"


def test_a_filter_is_completed_in_the_shell(terminal: Terminal) -> None:
    prepare(terminal)
    said = terminal.run(
        _PENSTOCK_COMPLETE="fish_complete", COMP_WORDS="penstock list --filter queue:ma",
        COMP_CWORD="queue:ma",
    )  # fmt: skip
    assert said.out.split() == ["plain,queue:mail"]
