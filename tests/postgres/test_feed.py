"""The export waits for transactions that may still write before what it has seen."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Struct

from penstock.model.message import FeedMessage, HistoryRow, Leased
from penstock.model.store_types import Completion, Cursor, Entry
from penstock.stores.postgres import feed
from penstock.stores.postgres.store import PostgresStore
from tests.postgres.scenes import QUEUE, claim, connect, publish

pytestmark = pytest.mark.anyio


async def export_ids(store: PostgresStore) -> list[int]:
    return [each.id for each in (await store.feed(Cursor(0, 0, 0), 100)).messages]


async def test_what_an_open_transaction_has_written_comes_before_what_was_written_later(
    store: PostgresStore, url: str
) -> None:
    before = await publish(store)
    async with connect(url) as writer:
        transaction = writer.transaction()
        await transaction.start()
        (open_,) = await store.aenqueue_on(writer, [Entry(QUEUE, "test", b"")])
        after = await publish(store)
        assert await export_ids(store) == before
        await transaction.commit()
    assert await export_ids(store) == [*before, open_.id, *after]


async def test_the_transaction_that_holds_the_feed_back_is_named(
    store: PostgresStore, url: str
) -> None:
    async with connect(url, application_name="report") as writer:
        transaction = writer.transaction()
        await transaction.start()
        await writer.execute("SELECT txid_current()")
        pid = writer.get_server_pid()
        texts = {check.name: check.text for check in await store.examine()}
        await transaction.rollback()
    assert texts["transactions"].endswith(f"(pid {pid}, application 'report')")


async def test_what_lies_far_apart_is_found(store: PostgresStore, url: str) -> None:
    ids = []
    async with connect(url) as other:
        for idle in (0, 40, 3):
            for _ in range(idle):
                await other.execute("SELECT txid_current()")
            ids += await publish(store)
    cursor, found = Cursor(), []
    while told := (page := await store.feed(cursor, 1)).messages:
        found += [each.id for each in told]
        cursor = page.cursor
    assert found == ids


async def test_small_pages_do_not_read_pages_of_the_table_that_were_read_before(
    store: PostgresStore, url: str
) -> None:
    await publish(store, 500, body=b"x" * 1_000)
    await store.heads(Cursor(), 10)
    async with connect(url) as other:
        assert await other.fetchval("SELECT brin_summarize_new_values('penstock.message_tx')") == 0


async def test_the_feed_does_not_wait_for_a_vacuum(store: PostgresStore, url: str) -> None:
    ids = await publish(store, 3)
    async with connect(url) as other, other.transaction():
        await other.execute("LOCK penstock.message IN SHARE UPDATE EXCLUSIVE MODE")
        assert [each.id for each in (await store.heads(Cursor(), 10)).messages] == ids


async def test_columns_are_the_rows_turned_on_their_side(store: PostgresStore) -> None:
    await publish(store, 3)
    await publish(store, 4, body=b"\0\xff")
    await complete(store, await claim(store, 5))
    told = await store.feed(Cursor(), 100)
    messages = await store.dialect.columns("message", 0, told.cursor.message, 7)
    history = await store.dialect.columns("history", 0, told.cursor.history, 5)
    assert messages == turn_rows(told.messages, FeedMessage)
    assert history == turn_rows(told.history, HistoryRow)
    assert await store.dialect.columns("message", 0, told.cursor.message, 6) is None


def turn_rows(rows: Sequence[Any], kind: type[Struct]) -> dict[str, list[Any]]:
    """Without tracebacks, which the feed leaves out."""
    names = [name for name in kind.__struct_fields__ if name != "traceback"]
    return {name: [getattr(row, name) for row in rows] for name in names}


async def complete(store: PostgresStore, held: list[Leased]) -> None:
    await store.complete([Completion(each.id, each.fence) for each in held])


async def test_large_bodies_come_one_position_at_a_time(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(store, 2, body=b"x" * 40)
    first = (await store.feed(Cursor(), 100)).cursor.message
    await publish(store, 1, body=b"y" * 20)
    told = await store.feed(Cursor(), 100)
    monkeypatch.setattr(feed, "MAX_PAGE_BYTES", 70)
    assert await store.dialect.columns("message", 0, told.cursor.message, 100) is None
    # More than a page, and more than one value holds: a transaction is never divided.
    large = await store.dialect.columns("message", first - 1, first, 1)
    small = await store.dialect.columns("message", first, told.cursor.message, 100)
    assert large == turn_rows(told.messages[:2], FeedMessage)
    assert small == turn_rows(told.messages[2:], FeedMessage)
