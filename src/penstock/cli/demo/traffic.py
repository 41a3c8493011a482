"""Traffic of `penstock demo` and `./dev run`: mails, images and orders, of which some fail."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from penstock.cli.demo.app import Order, resize, send_mail
from penstock.model.message import Draft
from penstock.model.store_types import Published

Publish: TypeAlias = Callable[[Draft], Awaitable[Published]]

CUSTOMERS = 50


async def send_traffic(number: int, publish: Publish) -> list[int]:
    """Sends what customer `number` causes, and returns the ids. Orders go through `publish`."""
    customer = number % CUSTOMERS
    mail = await send_mail.aenqueue(f"customer{customer}@example.org", f"order {number}")
    order = await publish(make_order(number, key=f"customer-{customer}"))
    ids = [mail.id, order.id]
    if number % 5 == 0:
        image = await resize.options(priority=number % 10).aenqueue("cat.png", [64, 128, 256])
        ids.append(image.id)
    return ids


def make_order(number: int, key: str | None = None) -> Draft:
    """Every 40th order has no total and becomes a dead letter."""
    order = Order(number=number, total=0.0 if number % 40 == 0 else 9.5)
    return Draft(queue="orders", body=msgspec.json.encode(order), max_attempts=1, ordering_key=key)
