"""The whole product on one SQLite file: workers, agents, the HTTP service and traffic.

Start it with `./dev run` and stop it with Ctrl-C. It then prints a summary, and removes its
temporary files. With a FILE as argument, the file stays.
"""

import argparse
import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock import Broker
from penstock.client import Client
from penstock.errors import PenstockError

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
from live_app import QUEUES, app, furnish, send_shop_traffic  # noqa: E402

APP = "live_app:app"
COLUMNS = ("queue", "ready", "scheduled", "claimed", "dead", "ended")
PLACES = ("ready", "scheduled", "lease", "dead", "ended")


def start(environment: dict[str, str], *words: str) -> "subprocess.Popen[bytes]":
    """Starts a command of penstock. It logs to a file beside the database."""
    command = [sys.executable, "-m", "penstock", *words]
    with open(environment["PENSTOCK_LOG"], "ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def wait_until_ready(client: Client, stopped: asyncio.Event) -> None:
    """Waits until the HTTP service answers."""
    while not stopped.is_set():
        try:
            await client.admin.queues()
        except PenstockError:
            await pause(stopped, 0.1)
        else:
            return


async def publish(service: str, stopped: asyncio.Event) -> None:
    """Sends traffic a few times per second, half of it through the HTTP service."""
    async with Client(service) as client:
        await wait_until_ready(client, stopped)
        if not stopped.is_set():
            await act_as_operator(client)
        number = 0
        while not stopped.is_set():
            number += 1
            await send_shop_traffic(number, client.publish)
            await pause(stopped, random.uniform(0.02, 0.3))


async def act_as_operator(client: Client) -> None:
    """Leaves entries in the audit log, a key that may look, a saved view and a bulk action."""
    send = client.admin.send
    found = await send("GET", "/v1/keys", gives=dict[str, Any])
    if found["keys"]:
        return
    await client.admin.set_queue("mail", purpose="Mails to customers")
    viewer = {"name": "wallboard", "roles": ["viewer"]}
    await send("POST", "/v1/keys", viewer, gives=Any)
    view = {"filter": "state:dead queue:webhooks error:TimeoutError"}
    await send("PUT", "/v1/views/broken-hosts", view, gives=Any)
    again = {"verb": "redrive", "filter": "state:dead queue:payments", "rate": 5.0}
    await send("POST", "/v1/bulk", again, gives=Any)


async def pause(stopped: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopped.wait()


class Ended:
    """Measures how many messages ended per second since the last call."""

    def __init__(self) -> None:
        self.total, self.at = 0, time.monotonic()

    def rate(self, total: int) -> float:
        now = time.monotonic()
        rate = (total - self.total) / max(now - self.at, 0.001)
        self.total, self.at = total, now
        return rate


def next_steps(path: str, service: str) -> str:
    """What to try in another terminal. `./dev exec` has penstock on its PATH."""
    command = f"./dev exec penstock --url sqlite:///{path}"
    return "\n".join(
        (
            "In another terminal:",
            f"  {command} status",
            f"  {command} list --state dead",
            f"  {command} worker list",
            f"  {command} top",
        )
    )


async def picture(broker: Broker, path: str, service: str, ended: Ended) -> Group:
    counts = {(tally.queue_id, tally.place): tally.count for tally in await broker.store.census()}
    table = Table()
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "queue" else "right")
    for queue in await broker.admin.queues():
        row = [counts.get((queue.id, place), 0) for place in PLACES]
        if any(row) and not queue.system:
            table.add_row(queue.name, *map(str, row))
    total = sum(count for (_, place), count in counts.items() if place == "ended")
    return Group(
        Text(f"{len(await broker.store.workers())} workers on {path}"),
        Text(f"Dashboard: {service}/    API: {service}/docs    {service}/metrics"),
        table,
        Text(f"{total} messages ended, {ended.rate(total):.0f} per second. Ctrl-C stops"),
    )


async def summarize(broker: Broker, began: float) -> str:
    tallies = await broker.store.census()
    count = {
        place: sum(tally.count for tally in tallies if tally.place == place)
        for place in ("message", "ended", "dead")
    }
    return (
        f"ran for {time.monotonic() - began:.0f} s: {count['message']} messages published,"
        f" {count['ended']} ended, {count['dead']} dead letters,"
        f" {count['message'] - count['ended'] - count['dead']} waiting"
    )


async def main(path: str, seconds: float) -> None:
    url = f"sqlite:///{path}"
    app.use(url)
    environment = os.environ | {"PENSTOCK_URL": url, "PENSTOCK_LOG": f"{path}.log"}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(FOLDER), os.getenv("PYTHONPATH")))
    )
    broker = await app.broker()
    # A broker on a store: the census is not for clients.
    assert isinstance(broker, Broker)
    await app.ensure_queues(broker, QUEUES)
    await furnish()
    port = find_free_port()
    service = f"http://127.0.0.1:{port}"
    processes = [
        start(environment, "up", APP, "--port", str(port), "--count", "8"),
        start(environment, "worker", "start", APP, "--count", "8"),
    ]
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    asyncio.get_running_loop().call_later(seconds, stopped.set)
    publishing = asyncio.create_task(publish(service, stopped))
    publishing.add_done_callback(lambda done: stopped.set())
    console = Console()
    began, ended = time.monotonic(), Ended()
    console.print(f"Dashboard: {service}/", soft_wrap=True, style="bold")
    console.print(f"running on {path}; Ctrl-C stops", soft_wrap=True)
    console.print(next_steps(path, service), soft_wrap=True, highlight=False)
    try:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            while not stopped.is_set():
                live.update(await picture(broker, path, service, ended), refresh=True)
                await pause(stopped, 0.5)
    finally:
        await publishing
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            await asyncio.to_thread(process.wait)
        console.print(await picture(broker, path, service, ended))
        console.print(await summarize(broker, began), soft_wrap=True)
        await app.aclose()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", help="SQLite file (default: a new temporary file)")
    parser.add_argument("--seconds", type=float, default=86_400.0, help="how long to run")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    if given.path:
        asyncio.run(main(os.path.abspath(given.path), given.seconds))
    else:
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            asyncio.run(main(str(Path(folder) / "penstock.db"), given.seconds))
