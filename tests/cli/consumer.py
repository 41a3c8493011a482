"""What only producers and consumers can do, on the store of the terminal."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import Draft, Leased, SettleReject

T = TypeVar("T")


def on_store(work: Callable[[Broker], Awaitable[T]]) -> T:
    async def main() -> T:
        async with await stores.open("sqlite:///penstock.db") as store:
            return await work(Broker(store))

    return asyncio.run(main())


async def take(broker: Broker, queue: str = "default") -> Leased:
    taken = await broker.claim(queue, consumer="test")
    return taken.messages[0]


def publish(**fields: Any) -> None:
    async def work(broker: Broker) -> None:
        await broker.publish(Draft(**{"body": b'{"n":1}', "type": "shop.send", **fields}))

    on_store(work)


def kill(error: str = "no", count: int = 1) -> None:
    """The next messages are dead."""

    async def work(broker: Broker) -> None:
        taken = await broker.claim("default", consumer="test", limit=count)
        await broker.settle_many([(each, SettleReject(error)) for each in taken.messages])

    on_store(work)
