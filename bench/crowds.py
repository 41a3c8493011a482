"""Publishing to a store with many queues and types, in a child process."""

import time

from bench.processes import Start
from bench.verbs import make_draft, open_broker, require, run
from bench.workload import BULK, make_bodies
from penstock.broker.local import Broker
from penstock.model.message import Draft

QUEUES = 10
TYPES = 10


def bulk_mixed(start: Start, url: str, count: int) -> float:
    """Returns messages per second, 1000 per call, to ten queues with ten types."""
    return run(_bulk_mixed(start, url, count))


async def _bulk_mixed(start: Start, url: str, count: int) -> float:
    async with open_broker(url) as broker:
        queues = await create(broker, QUEUES)
        drafts = [
            make_mixed_draft(text, queues, number) for number, text in enumerate(make_bodies(BULK))
        ]
        await publish(broker, drafts)
        start()
        began = time.monotonic()
        for _ in range(count // BULK):
            await publish(broker, drafts)
        return count / (time.monotonic() - began)


def fill_others(start: Start, url: str, queues: int, each: int) -> None:
    """Fills other queues with messages that no consumer claims."""
    run(_fill_others(start, url, queues, each))


async def _fill_others(start: Start, url: str, queues: int, each: int) -> None:
    async with open_broker(url) as broker:
        start()
        names = await create(broker, queues)
        for text in make_bodies(each):
            await publish(broker, [make_draft(text, name) for name in names])


async def create(broker: Broker, count: int) -> list[str]:
    names = [f"crowd-{number}" for number in range(count)]
    for name in names:
        await broker.admin.create_queue(name)
    return names


def make_mixed_draft(text: str, queues: list[str], number: int) -> Draft:
    return Draft(
        body=text.encode(),
        queue=queues[number % QUEUES],
        type=f"type-{number // QUEUES % TYPES}",
    )


async def publish(broker: Broker, drafts: list[Draft]) -> None:
    published = await broker.publish_many(drafts)
    require(all(each.id for each in published), "a message was refused")
