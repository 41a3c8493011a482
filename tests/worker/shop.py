"""Tasks that run in processes: a child has to find them in a module."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from penstock import Context, Message, Penstock, Reject, Retry

app = Penstock("sqlite://")


class Refused(Exception):
    """Known only where the task is."""


@app.task(executor="process")
def double(number: int) -> int:
    return 2 * number


@app.task(executor="process")
async def add(a: int, *, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


@app.task(executor="process")
def attach(context: Context, path: str) -> str:
    context.attach("a.txt", b"bytes")
    context.attach("b.txt", Path(path))
    try:
        context.attach("c.txt", Path(path) / "missing")
    except OSError as error:
        return type(error).__name__
    return "all"


@app.task(executor="process")
def where() -> int:
    return os.getpid()


class Unstorable(Exception):
    """Cannot be sent to another process as it is."""

    def __init__(self, what: object) -> None:
        super().__init__("holds an object")
        self.what = what


ERRORS: dict[str, BaseException] = {
    "refused": Refused("by its own class"),
    "retry": Retry(delay=100, reason="later"),
    "reject": Reject("never"),
    "error": ValueError("boom"),
    "sys.exit": SystemExit(4),
    "unstorable": Unstorable(object()),
}


@app.task(executor="process", no_retry_on=[Refused], max_attempts=2)
def fail(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        os.kill(os.getpid(), 11)
    if how in ERRORS:
        raise ERRORS[how]


@app.task(executor="process")
def hang(marker: str) -> None:
    """Busy with something that no exception can stop, and not alone."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(marker).write_text(f"{os.getpid()} {child.pid}")
    while True:
        try:
            child.wait()
        except BaseException:  # noqa: BLE001
            continue


@app.task(executor="process")
def nap(seconds: float) -> None:
    time.sleep(seconds)  # noqa: TID251


@app.task(executor="process")
def report(context: Context) -> str:
    context.progress(1, total=4, note="a quarter")
    while not context.cancelled:
        time.sleep(0.01)  # noqa: TID251
    context.raise_if_cancelled()
    return "not cancelled"


@app.task(executor="process")
def enqueue_more() -> int:
    return double.enqueue(5).id


@app.task(executor="process", policy="ack_first")
def once() -> None:
    os._exit(7)


@app.task(executor="process")
def weird() -> object:
    return lambda: None


@app.subscriber("orders", executor="process", policy="manual")
def on_order(message: Message[int]) -> None:
    match message.body:
        case 1:
            message.ack()
        case 2:
            message.nack(delay=100, error="by hand")


def _named() -> str:
    return "found"


renamed = app.task(executor="process", name="renamed")(_named)


@app.task(executor="process", max_attempts=1)
def suspend(context: Context) -> None:
    context.sync.sleep(1)
