"""The app of `./dev run`: a shop whose mail server is busy, whose index is slow, and whose refunds
wait for people."""

import asyncio
import math
import random
import time

from penstock import Context, Draft, HumanPattern, QueueState, constant, exponential
from penstock.cli.demo.app import app, resize, send_mail
from penstock.cli.demo.steps import Publish, send_traffic

__all__ = ["app"]
QUEUES = (
    "exports", "images", "mail", "orders", "payments", "refunds", "reports", "search-index",
    "thumbnails", "webhooks",
)  # fmt: skip
COUNTRIES = ("BR", "DE", "IT", "US")
# One wave of traffic to the index, in seconds.
WAVE_S = 420
REFUND = HumanPattern(
    name="refund",
    spec={
        "title": "Refund {{amount}} € for order {{order}}?",
        "content": "Order {{order}} arrived broken. Photos are attached.",
        "input": {
            "amount": {"title": "Amount", "type": "number", "minimum": 0, "default": "{{amount}}"},
            "reason": {"title": "Reason", "default": "damaged in transit"},
        },
        "options": [
            {"id": "approve", "label": "Approve", "kind": "approve"},
            {"id": "reject", "label": "Reject", "kind": "reject"},
        ],
        "assign": {"roles": ["finance"]},
        "timeout": 3_600.0,
        "on_timeout": {"escalate": "cfo"},
    },
)

MAIL = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "subject": {"type": "string"}},
    "required": ["to"],
}


REFUND_BODY = {
    "type": "object",
    "properties": {"order": {"type": "integer"}, "amount": {"type": "number", "minimum": 0}},
}


def find_charge(order: int) -> str:
    return f"payment_{order % 4096:x}"


def reserve_stock(order: int) -> str:
    return "warehouse FRA"


def pay_back(payment: str, amount: str) -> str:
    return f"{amount} to {payment}"


@app.task(queue="refunds")
async def refund(context: Context, order: int, amount: float, hours: float) -> str:
    """Waits for a person without a worker."""
    payment = await context.step("charge", find_charge, order)
    await context.step("reserve stock", reserve_stock, order)
    answer = await context.approve(
        "refund", order=order, amount=f"{amount:.2f}", timeout=hours * 3_600
    )
    if answer.choice != "approve":
        return f"refused: {answer.choice}"
    return await context.step(
        "pay back", pay_back, payment, str(answer.inputs.get("amount", amount))
    )


@app.task(queue="reports", max_attempts=1)
async def reconcile(day: str) -> None:
    raise ValueError(f"the ledger of {day} and the bank differ by 12.40")


@app.task(queue="webhooks", retry=exponential(0.5), max_attempts=3)
async def call_webhook(host: int) -> str:
    """One host does not answer, and one refuses now and then."""
    await asyncio.sleep(0.05)
    if host == 14:
        raise TimeoutError(f"no answer from host-{host} after 30000 ms")
    if host == 9 and random.random() < 0.5:
        raise ConnectionRefusedError(f"host-{host} refused the connection on port 443")
    return "204"


@app.task(queue="search-index", retry=constant(1.0))
async def index(product: int) -> int:
    await asyncio.sleep(random.uniform(0.2, 1.8))
    return product


@app.task(queue="payments", retry=exponential(1.0), max_attempts=5)
async def capture(order: int) -> str:
    await asyncio.sleep(0.1)
    if random.random() < 0.05:
        raise ConnectionError("the bank is busy")
    return f"captured {order}"


async def send_shop_traffic(number: int, publish: Publish) -> None:
    """Sends what the shop's customer `number` causes."""
    await send_traffic(number, publish)
    country = random.choice(COUNTRIES)
    host = 14 if country == "BR" and number % 3 == 0 else random.randrange(12)
    await call_webhook.options(labels={"country": country}).aenqueue(host)
    if number % 2 == 0:
        await capture.options(key=f"customer-{number % 50}").aenqueue(90_000 + number)
    if number % 5 == 0:
        await send_mail.options(delay=600.0).aenqueue("ada@example.org", f"reminder {number}7")
    if number % 60 == 1:
        await publish(
            Draft(queue="thumbnails", type="image.thumbnail", body=b'{"image":"cat.png"}')
        )
    wave = 0.55 + 0.45 * math.sin(2 * math.pi * time.time() / WAVE_S)
    for _ in range(3):
        if random.random() < wave:
            await index.aenqueue(number)


async def furnish() -> None:
    """Adds a rule, schemas, workflows, a paused queue and open decisions, once per file."""
    broker = await app.broker()
    if await broker.rules.list_rules():
        return
    await broker.inbox.patterns.save(REFUND)
    when = "message.body.total > 9.0"
    await broker.rules.save(
        {"name": "large-orders", "queue": "orders", "when": when, "do": [{"set": {"priority": 5}}]}
    )
    async with app.workflow("nightly-close") as flow:
        collect = flow.add(resize.call("receipts", [2_000]))
        parts = [
            flow.add(resize.call(f"part-{number}", [3_000]), after=collect) for number in (1, 2)
        ]
        flow.add(send_mail.call("ada@example.org", "the books are closed"), after=parts)
    async with app.workflow("monthly-books") as flow:
        found = flow.add(resize.call("statements", [1_000]))
        checked = flow.add(reconcile.call("2026-10-31"), after=found)
        flow.add(send_mail.call("ada@example.org", "the month is closed"), after=checked)
    await broker.schemas.add("mail", MAIL)
    await broker.schemas.bind("mail", "mail", follow=True)
    await broker.schemas.add("refund", REFUND_BODY)
    await broker.schemas.bind("refunds", "refund", follow=True)
    for order, amount, hours in ((90_017, 612.40, 0.8), (90_044, 58.00, 5.0)):
        await refund.aenqueue(order, amount, hours)
    await broker.admin.set_state("exports", QueueState.PAUSED)
    for day in range(1, 6):
        body = f'{{"day":"2026-11-{day:02d}"}}'.encode()
        await broker.publish(Draft(queue="exports", type="export.day", body=body))
