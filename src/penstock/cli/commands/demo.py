"""The command `demo`."""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

import click

from penstock.cli.commands.status import gather, print_counts
from penstock.cli.context import CommandContext, command
from penstock.cli.output import print_json
from penstock.errors import JobFailed

group = click.Group()


@command(group, "demo")
def demo(session: CommandContext) -> None:
    """Demonstrate the main features on a temporary SQLite file.

    \b
    penstock demo
    """
    from penstock.cli.logs import configure

    configure("quiet")
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        os.environ["PENSTOCK_URL"] = url = f"sqlite:///{folder}/demo.db"
        asyncio.run(play(session, url, Path(folder)))


async def play(session: CommandContext, url: str, folder: Path) -> None:
    from penstock.cli.commands.jobs import ensure_shell_queue
    from penstock.cli.demo.app import app
    from penstock.cli.demo.steps import STEPS, DemoStage
    from penstock.worker.executors.shell import ShellHandler
    from penstock.worker.options import WorkerOptions
    from penstock.worker.worker import Worker

    started = time.perf_counter()
    broker = await app.broker()
    handlers = [each for each in app.handlers() if each.queue != "crash"]
    await app.ensure_queues(broker, {each.queue for each in handlers})
    await app.prepare(broker)
    await ensure_shell_queue(broker, "shell", app.scope)
    shell = ShellHandler("shell", folder / "demo.db.jobs")
    options = WorkerOptions(grace=1.0)
    worker = Worker(
        broker,
        [*handlers, shell],
        options,
        connect=app.connections.open,
        address=app.connections.address(),
    )
    async with app.agents(broker), worker:
        for number, (title, step) in enumerate(STEPS.items(), 1):
            result = await run_step(title, step(DemoStage(broker, url, folder)))
            if session.as_json:
                print_json({"step": number, "title": title, "result": result})
            else:
                print(f"{number:>2}  {title:<16}  {result}", flush=True)
    if not session.as_json:
        print()
        print_counts((await gather(broker, app.scope))["queues"])
        print(f"\ntook {time.perf_counter() - started:.1f} s")
    await app.aclose()


async def run_step(title: str, step: Awaitable[str]) -> str:
    try:
        return await step
    except TimeoutError:
        raise JobFailed(f"demo step {title!r} timed out") from None


COMMANDS = {"demo": demo}
