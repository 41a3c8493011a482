"""The feed without bodies: the same rows, with the message of each and its earlier rows."""

from typing import Any

import pytest

from penstock.model.heads import DigestBounds, EarlierRow, FeedDigest, FeedHead, HeadFeed
from penstock.model.message import NEVER, HistoryRow, Nack, Release, SettleReject, State
from penstock.model.store_types import Cursor
from penstock.rules.digests import make_digest
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


async def read_digests(stage: Stage, limit: int, bounds: DigestBounds) -> list[FeedDigest]:
    pages: list[FeedDigest] = []
    cursor = Cursor()
    while True:
        page = await stage.store.digest(cursor, limit, bounds)
        if not page.count:
            return pages
        pages.append(page)
        cursor = page.cursor


async def live(stage: Stage) -> None:
    """Completes first runs, and one each that failed, was redriven, cancelled and has a lease."""
    await stage.queue("other")
    await stage.publish(b"x" * 10_000, type="big")
    await stage.publish(b"own", lease=40.0)
    await stage.publish(b"later", delay=5.0)
    await stage.publish(queue="other")
    await stage.broker.complete(await stage.take("other"))
    await stage.drain()
    await stage.broker.admin.cancel(await stage.publish())
    await stage.publish()
    await stage.broker.settle(await stage.take(), Nack("no", delay=0))
    await stage.broker.settle(await stage.take(), SettleReject("bad"))
    (dead,) = await stage.broker.admin.find("default", state=State.DEAD)
    await stage.broker.admin.redrive(dead.message.id)
    await stage.travel(6)
    await stage.promote()
    await stage.drain()
    await stage.publish()
    slow = await stage.take()
    await stage.travel(20)
    await stage.broker.complete(slow)


@pytest.mark.parametrize("limit", [1, 3, 1_000])
@pytest.mark.parametrize("bound", ["none", "run", "size", "whole"])
async def test_digests_have_what_pages_of_heads_have(stage: Stage, limit: int, bound: str) -> None:
    await live(stage)
    bounds = {
        "none": DigestBounds(),
        "run": DigestBounds(run=10_000_000),
        "size": DigestBounds(size=5_000),
        "whole": DigestBounds(whole=(await stage.queue_id("other"),)),
    }[bound]
    (whole,) = await read_all(stage, 1_000)
    expected = make_digest(whole, bounds)
    assert sum(len(group.runs) for group in expected.groups) == (4 if bound == "none" else 3)
    pages = await read_digests(stage, limit, bounds)
    assert [tuple(each) for page in pages for each in page.published] == expected.published
    assert sum_groups(pages) == sum_groups([expected])
    assert [row for page in pages for row in page.rest.history] == expected.rest.history
    assert pages[-1].position == expected.position
    for page in pages:
        for row in page.rest.history:
            assert page.rest.heads[row.id] == whole.heads[row.id]
            assert earlier(page.rest, row) == earlier(whole, row)


def earlier(page: HeadFeed, row: HistoryRow) -> list[EarlierRow]:
    return [rest for rest in page.rests.get(row.id, ()) if rest.position < row.position]


def sum_groups(pages: list[FeedDigest]) -> Any:
    """Adds up groups that are spread over pages."""
    found: dict[Any, Any] = {}
    for group in [group for page in pages for group in page.groups]:
        key = (group.queue_id, group.type, group.minute, group.consumer)
        first, last, runs, waits = found.get(key, (NEVER, 0, [], []))
        found[key] = (
            min(first, group.first_claimed_at), max(last, group.last_at),
            sorted([*runs, *group.runs]), sorted([*waits, *group.waits]),
        )  # fmt: skip
    return found


async def test_an_agent_holds_retention_for_a_day(stage: Stage) -> None:
    await stage.store.save_cursor("agent:test", Cursor())
    await stage.completed()
    await stage.travel(LEASE_OVER)
    assert await stage.prune(age=1) == 0
    assert await stage.store.cursors() == {}
    await stage.travel(DAY)
    assert await stage.prune(age=1) == 1
