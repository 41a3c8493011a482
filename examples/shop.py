"""The tasks of a small shop, to look at with `./dev run`."""

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
    """A mail server that is busy now and then."""
    await asyncio.sleep(random.uniform(0.01, 0.1))
    if random.random() < 0.1:
        raise ConnectionError("the mail server is busy")
    return f"sent {subject!r} to {to}"


@app.task(queue="images", timeout=10)
def resize(context: Context, name: str, sizes: list[int]) -> int:
    """Some work in a thread, with progress to see."""
    for number, size in enumerate(sizes, 1):
        context.raise_if_cancelled()
        sum(range(size * 1_000))
        context.progress(number, len(sizes))
    return len(sizes)


@app.subscriber("orders", batch=20)
async def on_orders(orders: list[Message[Order]]) -> None:
    """Messages from anyone, twenty at a time; one bad order does not hold up the others."""
    for order in orders:
        if order.body.count < 1:
            order.reject("an order of nothing")


@app.task(queue="reports", cron="* * * * *")
def report(context: Context) -> str:
    if context.attempt > 3:
        raise Reject("no report today")
    return f"report of {datetime.now(UTC):%H:%M}"
