"""A worker as a process of its own, for tests that kill it."""

import asyncio
import ctypes
import os
import signal
import sys

from penstock import Context, Message, Penstock
from penstock.worker.options import WorkerOptions
from penstock.worker.process import WorkerProcess

app = Penstock()
app.queue("orders", preset="faststream")


def there(path: str) -> bool:
    return os.path.exists(path)


def note(path: str, text: object) -> None:
    """One line, in one write: many processes share the file."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{text}\n".encode())
    os.close(file)


@app.task(name="wait")
async def wait(path: str, until: str) -> int:
    """Says which process it runs in, and waits for a file."""
    note(path, os.getpid())
    while True:
        if there(until):
            return os.getpid()
        await asyncio.sleep(0.01)


@app.task(name="wait_in_process", executor="process")
def wait_in_process(path: str) -> None:
    note(path, os.getpid())
    signal.pause()


@app.task(name="where_in_process", executor="process", max_attempts=1)
def where_in_process() -> int:
    return os.getpid()


@app.task(name="count")
async def count(path: str, number: int) -> None:
    note(path, number)


@app.task(name="hold_gil")
def hold_gil(path: str, seconds: int) -> int:
    """Stops every thread of the process meanwhile."""
    note(path, os.getpid())
    ctypes.PyDLL(None).sleep(seconds)
    return os.getpid()


@app.task(name="hold_gil_with_timeout", timeout=1.0, max_attempts=1)
def hold_gil_with_timeout(path: str, seconds: int) -> None:
    note(path, os.getpid())
    ctypes.PyDLL(None).sleep(seconds)


@app.task(name="attach")
async def attach(context: Context) -> None:
    await context.aattach("report", b"x" * 100_000)


@app.task(name="die")
async def die(context: Context, path: str) -> None:
    note(path, context.delivery.deliveries)
    os.kill(os.getpid(), signal.SIGKILL)


@app.subscriber("orders")
async def on_order(message: Message[str]) -> None:
    note(message.body, message.id)


async def main(concurrency: int, lease: float, grace: float) -> None:
    options = WorkerOptions(concurrency, lease=lease, grace=grace, fetch_batch_size=100)
    worker = await app.worker((), options)
    await WorkerProcess(worker, app.agents(await app.broker())).run()
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
