"""What tests of agents begin with, and how they look at what came of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import Draft, Leased, Moment, State, StoredMessage
from penstock.model.store_types import AgentRun
from penstock.store import Store
from penstock.testing.simulation import ManualClock


async def publish(broker: Broker, queue: str, count: int) -> list[int]:
    drafts = [Draft(queue=queue, body=b"%d" % number) for number in range(count)]
    return [published.id for published in await broker.publish_many(drafts)]


async def hold(
    broker: Broker, queue: str, count: int = 1, lease: float | None = None
) -> list[Leased]:
    """New messages, in the hands of a consumer."""
    await publish(broker, queue, count)
    taken = await broker.claim(queue, consumer="holder", limit=count, lease=lease)
    assert len(taken.messages) == count
    return taken.messages


async def state(broker: Broker, message: StoredMessage | int) -> State:
    id = message if isinstance(message, int) else message.id
    return (await broker.admin.get(id)).state


async def bodies(broker: Broker, queue: str) -> list[bytes]:
    found = await broker.admin.find(queue, limit=1_000)
    return [record.message.body for record in reversed(found)]


async def ticks(broker: Broker, queue: str) -> list[str]:
    """The times the messages of a schedule were stamped with."""
    found = await broker.admin.find(queue, limit=1_000)
    headers = [record.message.meta.headers or {} for record in reversed(found)]
    return [each["penstock-tick"] for each in headers]


async def last_run(store: Store, agent: str) -> AgentRun | None:
    runs = {run.name: run for run in await store.agent_runs()}
    return runs.get(agent)


def moment(text: str) -> Moment:
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)


@asynccontextmanager
async def two_stores(directory: Path, clock: ManualClock) -> AsyncIterator[tuple[Store, Store]]:
    """Two nodes' handles on one file: they work at the same time, in threads."""
    url = f"sqlite:///{directory / 'queue.db'}?durability=fast"
    async with (
        await stores.open(url, clock=clock) as one,
        await stores.open(url, clock=clock) as other,
    ):
        yield one, other
