"""Live demo on one SQLite file: two workers, their agents and some traffic.

Start it with `./dev run` and stop it with Ctrl-C. The file stays for the penstock command.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.broker.local import Broker
from penstock.model.message import Draft

HERE = Path(__file__).parent
COLUMNS = ("queue", "ready", "scheduled", "claimed", "dead", "ended")
PLACES = ("ready", "scheduled", "lease", "dead", "ended")


def start_worker(environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Starts a worker from the command line. It logs to a file beside the database."""
    command = [sys.executable, "-m", "penstock", "worker", "start", "shop:app", "--count", "8"]
    with open(environment["PENSTOCK_LOG"], "ab") as log:
        return subprocess.Popen(command, cwd=HERE, env=environment, stdout=log, stderr=log)


async def publish(broker: Broker, stopped: asyncio.Event) -> None:
    """Publishes a few orders, mails and images per second."""
    from shop import app, resize, send_mail

    number = 0
    while not stopped.is_set():
        number += 1
        await send_mail.aenqueue(f"customer{number % 50}@example.org", f"order {number}")
        if number % 5 == 0:
            await resize.options(priority=random.randint(0, 9)).aenqueue("cat.png", [64, 128, 256])
        body = b'{"customer": %d, "item": "pipe", "count": %d}' % (number % 50, number % 40)
        await app.apublish(Draft(queue="orders", body=body, ordering_key=f"c{number % 50}"))
        try:
            async with asyncio.timeout(random.uniform(0.02, 0.3)):
                await stopped.wait()
        except TimeoutError:
            pass


async def picture(broker: Broker, path: str) -> Group:
    counts = {(tally.queue_id, tally.place): tally.count for tally in await broker.store.census()}
    table = Table(*COLUMNS)
    for queue in await broker.admin.queues():
        if not queue.system:
            table.add_row(queue.name, *(str(counts.get((queue.id, place), 0)) for place in PLACES))
    return Group(
        Text(f"{len(await broker.store.workers())} workers on {path}"),
        table,
        Text(f"inspect it with PENSTOCK_URL=sqlite:///{path} penstock --help    Ctrl-C stops"),
    )


async def main(path: str, seconds: float) -> None:
    url = f"sqlite:///{path}"
    os.environ["PENSTOCK_URL"] = url
    environment = os.environ | {"PENSTOCK_LOG": f"{path}.log"}
    sys.path.insert(0, str(HERE))
    from shop import app

    broker = await app.broker()
    workers = [start_worker(environment) for _ in range(2)]
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    asyncio.get_running_loop().call_later(seconds, stopped.set)
    publishing = asyncio.create_task(publish(broker, stopped))
    console = Console()
    console.print(f"running on {path}; Ctrl-C stops", soft_wrap=True)
    try:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            while not stopped.is_set():
                live.update(await picture(broker, path), refresh=True)
                try:
                    async with asyncio.timeout(0.5):
                        await stopped.wait()
                except TimeoutError:
                    pass
    finally:
        await publishing
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            await asyncio.to_thread(worker.wait)
        console.print(await picture(broker, path))
        await app.aclose()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", help="SQLite file (default: a new temporary file)")
    parser.add_argument("--seconds", type=float, default=86_400.0, help="how long to run")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    file = given.path or str(Path(tempfile.mkdtemp(prefix="penstock-")) / "penstock.db")
    asyncio.run(main(os.path.abspath(file), given.seconds))
