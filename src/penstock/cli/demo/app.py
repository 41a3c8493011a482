"""The app of `penstock demo` and `./dev run`: small tasks that succeed, fail or wait."""

import asyncio
import os
from pathlib import Path

from msgspec import Struct

from penstock import Context, Message, Penstock, constant

app = Penstock()
# A cancellation reaches the worker when it renews the lease, so a short lease keeps the demo fast.
app.queue("short", lease=0.6)
app.queue("line")
seen: list[str] = []


class Order(Struct):
    number: int
    total: float


@app.task
async def add(a: int, b: int) -> int:
    return a + b


@app.task(retry=constant(0.2), max_attempts=3)
def call_server(context: Context) -> str:
    if context.attempt < 3:
        raise ConnectionError("server unavailable")
    return f"succeeded at attempt {context.attempt}"


@app.task(max_attempts=1)
def read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


@app.task(timeout=0.3, max_attempts=1)
async def get_stuck() -> None:
    await asyncio.sleep(60)


@app.task(queue="short")
async def count(context: Context, to: int) -> int:
    for number in range(to):
        context.progress(number, total=to, note=f"step {number}")
        context.raise_if_cancelled()
        await asyncio.sleep(0.05)
    return to


@app.task(queue="line")
async def note(text: str) -> None:
    seen.append(text)
    await asyncio.sleep(0.05)
    seen.append(f"{text} done")


@app.task(executor="process")
def get_process_id() -> int:
    return os.getpid()


@app.task(queue="reports", cron="* * * * *", timezone="Europe/Rome")
def report() -> str:
    return "all is well"


@app.task(queue="mail", retry=constant(0.2), max_attempts=4)
async def send_mail(context: Context, to: str, subject: str) -> str:
    """Fails now and then, as a busy mail server does."""
    await asyncio.sleep(0.02)
    if subject.endswith("0") and context.attempt == 1:
        raise ConnectionError("mail server busy")
    return f"sent {subject!r} to {to}"


@app.task(queue="images", timeout=10)
def resize(context: Context, name: str, sizes: list[int]) -> int:
    """Runs in a thread and reports progress."""
    for number, size in enumerate(sizes, 1):
        context.raise_if_cancelled()
        sum(range(size * 1_000))
        context.progress(number, len(sizes))
    return len(sizes)


@app.subscriber("orders", batch=10)
async def on_orders(messages: list[Message[Order]]) -> list[Exception | None]:
    """Return one outcome per order. Only orders without a total fail."""
    return [None if message.body.total else ValueError("no total") for message in messages]


@app.task(queue="crash", lease=1.0)
async def survive(context: Context, path: str) -> int:
    """Hang at the first delivery, so that the demo can kill the worker."""
    if context.delivery.deliveries == 1:
        await asyncio.to_thread(Path(path).write_text, str(os.getpid()), encoding="utf-8")
        await asyncio.sleep(60)
    return context.delivery.deliveries
