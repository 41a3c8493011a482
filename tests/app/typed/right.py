"""What users write; a type checker has nothing to say about it."""

from datetime import UTC, datetime
from typing import assert_type

import msgspec

from penstock import (
    AckPolicy,
    Context,
    Dedup,
    Draft,
    Job,
    Message,
    Penstock,
    Reject,
    Retry,
    await_many,
    constant,
    exponential,
    wait_many,
)

app = Penstock("sqlite://")


class Order(msgspec.Struct):
    item: str


@app.task
async def send(to: str, subject: str = "hi") -> str:
    return to + subject


@app.task
def double(number: int) -> int:
    return 2 * number


@app.task(queue="reports", cron="0 9 * * *", timezone="Europe/Rome", max_attempts=3)
def report(context: Context, pages: int = 1) -> list[int]:
    context.progress(3, total=10, note="three")
    context.raise_if_cancelled()
    if context.attempt > 1:
        raise Retry(delay=5)
    return [pages]


@app.task(retry=exponential(1, 2, max_attempts=3), retry_on=[OSError], no_retry_on=[KeyError])
async def fetch(context: Context, url: str, *, deep: bool = False) -> bytes | None:
    context.heartbeat()
    raise Reject(url)


@app.subscriber("orders", batch=100, policy=AckPolicy.MANUAL, retry=constant(5))
async def on_orders(messages: list[Message[Order]]) -> None:
    for message in messages:
        assert_type(message.body, Order)
        message.ack()


class Slower:
    """A retry strategy of one's own."""

    def delay(self, attempt: int) -> float | None:
        return None if attempt > 3 else 2.0 * attempt


@app.subscriber("orders", type="single", retry=Slower())
def on_order(message: Message[dict[str, int]]) -> None:
    assert_type(message.body, dict[str, int])


def hook(event: str, context: Context, error: BaseException | None) -> None:
    print(event, context.id, error)


app.on("completed", hook)


def sync_caller() -> None:
    assert_type(send.enqueue("a@b"), Job[str])
    assert_type(send.enqueue("a@b", subject="x").result(timeout=5), str)
    assert_type(double.enqueue(2).result(), int)
    assert_type(double(2), int)
    assert_type(report(), list[int])
    assert_type(report.enqueue(pages=2).result(), list[int])
    assert_type(fetch.enqueue("u", deep=True).result(), bytes | None)
    later = send.options(delay=60, key="customer-7", unique="welcome:7", priority=3)
    assert_type(later.enqueue("a@b").result(), str)
    timed = double.options(run_at=datetime.now(UTC), dedup=Dedup("x"), headers={"a": "b"})
    assert_type(timed.call(3).task.enqueue(4).result(), int)
    assert_type(app.enqueue_many(double.call(n) for n in range(3)), list[Job[int]])
    assert_type(wait_many([double.enqueue(1)]), list[int])
    assert_type(double.job(5).result(), int)
    app.publish(Draft(queue="orders", body=b"{}"))


async def async_caller() -> None:
    assert_type(await send("a@b"), str)
    assert_type(await send.aenqueue("a@b"), Job[str])
    assert_type(await (await fetch.aenqueue("u")).aresult(5), bytes | None)
    assert_type(await app.aenqueue_many([send.call("a")], atomic=True), list[Job[str]])
    assert_type(await await_many([await double.aenqueue(1)]), list[int])
    assert_type(await fetch("u", deep=True), bytes | None)
