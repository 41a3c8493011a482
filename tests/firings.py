"""Schedules that are due, for tests of the stores that fire them."""

from penstock.agents.scheduler import make_tick_entry
from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.model.queue import Schedule
from penstock.model.store_types import Firing
from penstock.store import Store

SECOND = 1_000_000


async def due_firings(store: Store, count: int) -> list[Firing]:
    broker = Broker(store)
    queue = await broker.admin.queue("default")
    for number in range(count):
        await broker.admin.schedule(Schedule(f"{number}", "* * * * * *", Draft()))
    return [
        Firing(
            each.id,
            each.next_at,
            each.next_at + SECOND,
            (make_tick_entry(each, queue, each.next_at, each.draft),),
        )
        for each in await store.schedules()
    ]
