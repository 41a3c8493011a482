"""The feed without bodies: the same rows, with the message of each and its earlier rows."""

import pytest

from penstock.model.heads import FeedHead, HeadFeed
from penstock.model.message import Nack, Release
from penstock.model.store_types import Cursor
from tests.conformance.stage import DAY, HOUR, LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def read_all(stage: Stage, limit: int) -> list[HeadFeed]:
    pages: list[HeadFeed] = []
    cursor = Cursor()
    while True:
        page = await stage.store.heads(cursor, limit)
        if not page.messages and not page.history:
            return pages
        pages.append(page)
        cursor = page.cursor


@pytest.mark.parametrize("limit", [1, 3, 1_000])
async def test_pages_of_heads_have_what_the_feed_has(stage: Stage, limit: int) -> None:
    await stage.publish(b"x" * 10_000, type="big", max_attempts=7, lease=40.0)
    await stage.publish(b"later", delay=HOUR)
    for _ in range(2):
        leased = await stage.take()
        await stage.broker.settle(leased, Nack("no", delay=0))
    await stage.broker.settle(await stage.take(), Release())
    await stage.drain()
    feed = await stage.store.feed(Cursor(), 1_000)
    pages = await read_all(stage, limit)
    assert [head for page in pages for head in page.messages] == [
        FeedHead(
            each.id, each.queue_id, each.type, each.created_at, each.run_at, len(each.body),
            each.meta.max_attempts, each.meta.lease,
        )
        for each in feed.messages
    ]  # fmt: skip
    assert [row for page in pages for row in page.history] == feed.history
    assert pages[-1].cursor == feed.cursor
    for page in pages:
        for row in page.history:
            assert page.heads[row.id].size == 10_000
            assert page.heads[row.id].max_attempts == 7
            rests = [rest for rest in page.rests[row.id] if rest.position < row.position]
            earlier = [each for each in feed.history if each.position < row.position]
            assert [(r.verb, r.state, r.error, r.ready_at) for r in rests] == [
                (each.verb, each.state, each.error, each.due_at or each.at) for each in earlier
            ]


async def test_a_message_that_was_done_at_once_has_no_earlier_rows(stage: Stage) -> None:
    id = await stage.completed()
    (page,) = await read_all(stage, 10)
    assert page.heads[id].type == "message"
    assert page.rests == {}


async def test_an_agent_holds_retention_for_a_day(stage: Stage) -> None:
    await stage.store.save_cursor("agent:test", Cursor())
    await stage.completed()
    await stage.travel(LEASE_OVER)
    assert await stage.prune(age=1) == 0
    assert await stage.store.cursors() == {}
    await stage.travel(DAY)
    assert await stage.prune(age=1) == 1
