"""The readers of history, and the balance sheet."""

import pytest
from msgspec.structs import asdict

from penstock.model.message import FeedMessage, HistoryRow, Nack, Record, SettleReject
from penstock.model.store_types import Cursor
from tests.conformance.acts import SETTLING
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def read_all(stage: Stage, page: int) -> tuple[list[FeedMessage], list[HistoryRow]]:
    messages: list[FeedMessage] = []
    history: list[HistoryRow] = []
    cursor = Cursor()
    while True:
        feed = await stage.store.feed(cursor, page)
        if not feed.messages and not feed.history:
            assert feed.cursor == cursor
            return messages, history
        messages += feed.messages
        history += feed.history
        cursor = feed.cursor


def fed(record: Record) -> FeedMessage:
    """The message as the feed tells it."""
    told = asdict(record.message)
    return FeedMessage(**told, run_at=record.run_at, expires_at=record.expires_at)


async def some_lives(stage: Stage) -> list[int]:
    ids = await stage.publish_each(7, labels={"a": "b"})
    for act, _ in SETTLING.values():
        await act(stage.broker, await stage.take())
    return ids


@pytest.mark.parametrize("page", [1, 2, 3, 100])
async def test_the_feed_tells_everything_once_and_in_order(stage: Stage, page: int) -> None:
    ids = await some_lives(stage)
    messages, history = await read_all(stage, page)
    lives = [await stage.record(id) for id in ids]
    assert messages == [fed(record) for record in lives]
    assert {row.position: row for row in history} == {
        row.position: row for record in lives for row in record.timeline
    }
    assert [row.position for row in history] == sorted(row.position for row in history)
    assert len(history) == len(SETTLING)


async def test_the_feed_goes_on_where_it_stopped(stage: Stage) -> None:
    await stage.completed()
    cursor = (await stage.store.feed(Cursor(), 100)).cursor
    id = await stage.completed()
    feed = await stage.store.feed(cursor, 100)
    assert [message.id for message in feed.messages] == [id]
    assert [row.id for row in feed.history] == [id]


async def test_what_waits_or_is_held_is_in_the_feed_as_a_message_only(stage: Stage) -> None:
    ids = [await stage.publish(), await stage.publish(delay=60)]
    await stage.take()
    feed = await stage.store.feed(Cursor(), 100)
    assert ([message.id for message in feed.messages], feed.history) == (ids, [])


async def test_the_feed_tells_when_a_message_was_to_run_and_expires(stage: Stage) -> None:
    ids = [await stage.publish(), await stage.publish(delay=60, ttl=3_600)]
    messages, _ = await read_all(stage, 100)
    plain, delayed = messages
    assert (plain.run_at, plain.expires_at) == (None, None)
    assert delayed.run_at == delayed.created_at + 60_000_000
    assert delayed.expires_at is not None
    assert messages == [fed(await stage.record(id)) for id in ids]


async def test_recent_leaves_out_the_feed_up_to_a_cursor(stage: Stage) -> None:
    await some_lives(stage)
    cursor = (await stage.store.feed(Cursor(), 1_000)).cursor
    before = await stage.store.recent(0, 100)
    assert await stage.store.recent(0, 100, cursor) == []
    await stage.queue("other")
    await stage.completed(queue="other")
    rows = await stage.store.recent(0, 100, cursor)
    assert rows == (await stage.store.recent(0, 100))[len(before) :] != []


async def test_recent_tells_what_came_after_a_position(stage: Stage) -> None:
    ids = await some_lives(stage)
    rows = await stage.store.recent(0, 100)
    assert [row.position for row in rows] == sorted({row.position for row in rows})
    assert {row.id for row in rows} <= set(ids)
    assert await stage.store.recent(rows[2].position, 2) == rows[3:5]
    assert await stage.store.recent(rows[-1].position, 100) == []


async def test_history_is_only_ever_added_to(stage: Stage) -> None:
    id = await stage.dead()
    before = await stage.store.recent(0, 100)
    await stage.admin.redrive(id)
    await stage.drain()
    assert (await stage.store.recent(0, 100))[: len(before)] == before


async def test_the_census_counts_every_place(stage: Stage) -> None:
    await stage.dead()
    await stage.completed()
    await stage.publish_each(2)
    await stage.publish_each(3, delay=60)
    await stage.take()
    assert await stage.places() == {
        "ready": 1,
        "scheduled": 3,
        "lease": 1,
        "dead": 1,
        "ended": 1,
    }
    assert (await stage.tallies())["message"].count == 7


async def test_the_census_counts_each_queue_apart(stage: Stage) -> None:
    work = await stage.queue("work")
    await stage.publish_each(2)
    await stage.publish_each(3, queue="work")
    counts = {(tally.queue_id, tally.place): tally.count for tally in await stage.store.census()}
    assert counts[work, "ready"] == counts[work, "message"] == 3
    assert counts[await stage.queue_id(), "ready"] == 2


async def test_the_depths_are_counts_by_place_and_the_last_ends_by_state(stage: Stage) -> None:
    await stage.dead()
    await stage.completed()
    await stage.completed()
    await stage.admin.cancel(await stage.publish())
    await stage.publish_each(2)
    await stage.publish_each(3, delay=60)
    await stage.take()
    queue = await stage.queue_id()
    counted = {"ready": 1, "scheduled": 3, "lease": 1, "dead": 1}
    ends = {"completed": 2, "cancelled": 1}
    assert await stage.store.depths(10) == {
        (queue, place): count for place, count in (counted | ends).items()
    }
    assert await stage.store.depths(1) == {
        (queue, place): count for place, count in (counted | {"cancelled": 1}).items()
    }


async def test_a_digest_follows_its_message_from_place_to_place(stage: Stage) -> None:
    id = await stage.publish(delay=5)

    async def digest(place: str) -> int:
        tallies = await stage.tallies()
        assert (tallies[place].count, tallies["message"].count) == (1, 1)
        return tallies[place].digest

    digests = [await digest("scheduled")]
    await stage.travel(6)
    await stage.promote()
    digests.append(await digest("ready"))
    leased = await stage.take()
    digests.append(await digest("lease"))
    await stage.broker.settle(leased, SettleReject())
    digests.append(await digest("dead"))
    await stage.admin.redrive(id)
    await stage.drain()
    digests.append(await digest("ended"))
    assert len(set(digests)) == 1


async def test_digests_of_different_messages_differ(stage: Stage) -> None:
    digests = set()
    for _ in range(5):
        await stage.publish()
        await stage.claim()
        digests.add((await stage.tallies())["lease"].digest)
        await stage.travel(LEASE_OVER * 10)
        for move in await stage.reclaims():
            await stage.admin.cancel(move.id, force=True)
    assert len(digests) == 5


async def test_a_saved_cursor_is_read_back(stage: Stage) -> None:
    await stage.completed()
    cursor = (await stage.store.feed(Cursor(), 100)).cursor
    await stage.store.save_cursor("lake", Cursor())
    await stage.store.save_cursor("events", cursor)
    await stage.store.save_cursor("lake", cursor)
    saved = await stage.store.cursors()
    assert {name: each.cursor for name, each in saved.items()} == {"lake": cursor, "events": cursor}


async def test_a_message_ends_once_whatever_happens(stage: Stage) -> None:
    ids = await some_lives(stage)
    for id in ids:
        await stage.store.cancel([id], force=True)
        await stage.store.redrive([id])
        await stage.store.cancel([id], force=True)
    rows = await stage.store.recent(0, 1_000)
    finals = [row.id for row in rows if row.final]
    assert sorted(finals) == ids


async def test_a_row_tells_the_counters_after_it(stage: Stage) -> None:
    id = await stage.publish()
    await stage.broker.settle(await stage.take(), Nack(delay=0))
    await stage.broker.complete(await stage.take())
    rows = (await stage.record(id)).timeline
    assert [(row.attempts, row.deliveries) for row in rows] == [(1, 1), (2, 2)]
