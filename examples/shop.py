"""Example app: the tasks of a small shop. Run it with `./dev run`."""

import asyncio
import random
from datetime import UTC, datetime

import msgspec

from penstock import Context, Message, Penstock, Reject

app = Penstock()


class Order(msgspec.Struct):
    customer: int
    item: str
    count: int = 1


@app.task(queue="mail", max_attempts=4)
async def send_mail(to: str, subject: str) -> str:
    """Fails now and then, as a busy mail server does."""
    await asyncio.sleep(random.uniform(0.01, 0.1))
    if random.random() < 0.1:
        raise ConnectionError("the mail server is busy")
    return f"sent {subject!r} to {to}"


@app.task(queue="images", timeout=10)
def resize(context: Context, name: str, sizes: list[int]) -> int:
    """Works in a thread and reports progress."""
    for number, size in enumerate(sizes, 1):
        context.raise_if_cancelled()
        sum(range(size * 1_000))
        context.progress(number, len(sizes))
    return len(sizes)


@app.subscriber("orders", batch=20)
async def on_orders(orders: list[Message[Order]]) -> None:
    """Handles up to 20 messages at a time. A bad order does not affect the others."""
    for order in orders:
        if order.body.count < 1:
            order.reject("the order is empty")


@app.task(queue="reports", cron="* * * * *")
def report(context: Context) -> str:
    if context.attempt > 3:
        raise Reject("no report today")
    return f"report of {datetime.now(UTC):%H:%M}"
