"""A worker over more queues than one claim may name serves each in its turn."""

from collections.abc import AsyncIterator

import pytest

from penstock import Draft, Message, Penstock
from tests.app.scenes import until, working

pytestmark = pytest.mark.anyio
FLOOD = 300
OTHERS = [f"other_{number}" for number in range(20)]


@pytest.fixture
async def app(url: str) -> AsyncIterator[Penstock]:
    app = Penstock(url)
    yield app
    await app.aclose()


async def test_a_flood_in_one_queue_does_not_keep_the_others_waiting(app: Penstock) -> None:
    seen: list[str] = []
    for name in ("flood", *OTHERS):

        @app.subscriber(name)
        async def on_message(message: Message[str]) -> None:
            seen.append(message.body)

    broker = await app.broker()
    await app.ensure_queues(broker, ["flood", *OTHERS])
    await broker.publish_many([Draft(queue="flood", body=b'"flood"')] * FLOOD)
    await broker.publish_many([Draft(queue=name, body=b'"%b"' % name.encode()) for name in OTHERS])
    async with working(app, concurrency=1, fetch_batch_size=10) as worker:
        await until(lambda: worker.completed == FLOOD + len(OTHERS))
    assert sorted(each for each in seen if each != "flood") == sorted(OTHERS)
    assert max(seen.index(name) for name in OTHERS) < FLOOD / 2
