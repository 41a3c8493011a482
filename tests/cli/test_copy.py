"""copy: dry runs, refusals, and a process that is killed amid it."""

import signal
import subprocess
import sys
from pathlib import Path

from penstock.broker.local import Broker
from penstock.model.message import Draft
from tests.cli.consumer import kill, on_store, publish
from tests.cli.terminal import Terminal

FROM, TO = "sqlite:///penstock.db", "sqlite:///other.db"


def publish_many(count: int) -> None:
    async def work(broker: Broker) -> None:
        for _ in range(count // 1_000):
            await broker.publish_many([Draft(body=b"x" * 200)] * 1_000)

    on_store(work)


def count(terminal: Terminal, url: str) -> dict[str, int]:
    (queue,) = terminal.call("status", "--url", url, "--json").json["queues"]
    return {state: queue[state] for state in ("ready", "dead", "completed")}


def test_a_dry_run_shows_the_counts_and_creates_nothing(terminal: Terminal) -> None:
    publish()
    kill()
    said = terminal.call("copy", FROM, TO, "--dry-run")
    assert ["default", "0", "0", "0", "1", "0"] in said.rows()
    assert "would copy 1 message to" in said.out
    assert not (terminal.folder / "other.db").exists()


def test_a_store_is_copied_once(terminal: Terminal) -> None:
    publish()
    kill()
    publish()
    said = terminal.call("copy", FROM, TO)
    assert said.out.endswith("; the stores agree\n")
    assert count(terminal, TO) == {"ready": 1, "dead": 1, "completed": 0}
    assert terminal.call("audit", "--url", TO, "--json", "--limit", 1).json["verb"] == "copy"
    again = terminal.call("copy", FROM, TO, code=1)
    assert again.err == ("penstock: the target is already a complete copy; copy into a new store\n")
    same = terminal.call("copy", FROM, FROM, code=1)
    assert same.err == "penstock: source and target are the same store\n"


def test_a_missing_source_is_a_store_error(terminal: Terminal) -> None:
    said = terminal.call("copy", "sqlite:///nowhere.db", TO, code=3)
    assert "no store at" in said.err
    assert not Path("other.db").exists()


KILLED = """
import asyncio, os, signal
from penstock import stores
from penstock.broker.copy_store import copy_store

def report(count):
    if count >= 3_000:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with await stores.open("sqlite:///penstock.db") as source:
        async with await stores.open("sqlite:///other.db") as target:
            await copy_store(source, target, report=report)

asyncio.run(main())
"""


def test_a_copy_that_was_killed_is_resumed(terminal: Terminal) -> None:
    publish_many(20_000)
    ran = subprocess.run([sys.executable, "-c", KILLED], cwd=terminal.folder, check=False)
    assert ran.returncode == -signal.SIGKILL
    assert 3_000 <= count(terminal, TO)["ready"] < 20_000
    said = terminal.call("copy", FROM, TO, "--json")
    assert (said.json["messages"], said.json["resumes"]) == (20_000, True)
    assert count(terminal, TO) == {"ready": 20_000, "dead": 0, "completed": 0}
