"""A stretch of the feed is read exactly, on every store."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.broker.local import Broker
from penstock.errors import StoreUnusable
from penstock.model.message import Draft
from penstock.model.store_types import Cursor
from penstock.pipeline.extraction.arrow import choose_next_span
from penstock.pipeline.extraction.ranges import (
    Range,
    choose_next_limit,
    find_latest,
    make_batches,
    make_ranges,
    read_pages,
)
from penstock.pipeline.lake.schema import TABLES, choose_columns
from penstock.pipeline.store_access import make_absolute_url, use_store
from penstock.store import Store
from tests.pipeline.scenes import consume, fed, on, publish
from tests.pipeline.weeks import micros


async def read(store: Store, part: Range) -> list[int]:
    """In rows, and as tasks read it: that is in any order within a position."""
    ids = [row.id for rows in [rows async for rows in read_pages(store, part)] for row in rows]
    schema = choose_columns(part.table, ["id"])
    found = [batch["id"].to_pylist() async for batch in make_batches(store, part, schema)]
    assert sorted(id for each in found for id in each) == sorted(ids)
    return ids


def test_any_division_of_the_feed_reads_every_row_once(each_url: str) -> None:
    for count in (1, 700, 3):
        publish(each_url, count)
    consume(each_url, 500)
    messages, history = fed(each_url)

    async def work(broker: Broker) -> list[list[int]]:
        end = await find_latest(broker.store, Cursor())
        return [
            [
                id
                for part in await make_ranges(broker.store, table, Cursor(), end, rows)
                for id in await read(broker.store, part)
            ]
            for table in TABLES
            for rows in (10_000, 200)
        ]

    whole, parts, whole_history, history_parts = on(each_url, work)
    assert whole == parts == [row.id for row in messages]
    assert whole_history == history_parts == [row.id for row in history]


def test_the_latest_position_is_the_end_of_the_feed(each_url: str) -> None:
    publish(each_url, 50)
    consume(each_url, 10)

    async def work(broker: Broker) -> tuple[Cursor, Cursor, Cursor]:
        end = (await broker.store.feed(Cursor(), 1_000)).cursor
        return end, await find_latest(broker.store, Cursor()), await find_latest(broker.store, end)

    end, from_nothing, from_there = on(each_url, work)
    assert end == from_nothing == from_there


def test_an_empty_store_has_no_ranges(each_url: str) -> None:
    async def work(broker: Broker) -> list[list[Range]]:
        end = await find_latest(broker.store, Cursor())
        return [await make_ranges(broker.store, table, Cursor(), end, 10) for table in TABLES]

    assert on(each_url, work) == [[], []]


def test_a_stretch_tells_when_a_message_was_to_run_and_expires(each_url: str) -> None:
    """Also where the store gives its feed in columns."""

    async def work(broker: Broker) -> list[dict[str, Any]]:
        await broker.admin.create_queue("mail")
        await broker.publish_many([Draft(queue="mail"), Draft(queue="mail", delay=60, ttl=3_600)])
        end = await find_latest(broker.store, Cursor())
        schema = choose_columns("message", ["id", "run_at", "expires_at"])
        part = Range("message", 0, end.message)
        return [
            row
            async for batch in make_batches(broker.store, part, schema)
            for row in batch.to_pylist()
        ]

    rows = sorted(on(each_url, work), key=lambda row: row["id"])
    assert [micros_of(row) for row in rows] == [
        (each.id, each.run_at, each.expires_at) for each in fed(each_url)[0]
    ]
    assert all(rows[1].values())


def micros_of(row: dict[str, Any]) -> tuple[int, int | None, int | None]:
    moments = (row[name] and micros(row[name]) for name in ("run_at", "expires_at"))
    return row["id"], *moments


def test_parts_have_about_as_many_rows_whatever_a_position_is(each_url: str) -> None:
    """On PostgreSQL the first position is far from 0, and a thousand rows have the same."""
    publish(each_url, 5_000)

    async def work(broker: Broker) -> list[int]:
        end = await find_latest(broker.store, Cursor())
        parts = await make_ranges(broker.store, "message", Cursor(), end, 2_000)
        return [len(await read(broker.store, part)) for part in parts]

    counts = on(each_url, work)
    assert (sum(counts), 2 <= len(counts) <= 10, max(counts) <= 4_000) == (5_000, True, True)


def test_pages_of_large_bodies_are_small(url: str) -> None:
    messages, history = fed(url)
    large = [replace(messages[0], body=bytes(20_000_000))]
    assert (choose_next_limit(500, messages), choose_next_limit(500, large)) == (2_000, 250)
    assert choose_next_limit(10_000, history) == 20_000


@pytest.mark.parametrize(
    ("rows", "body", "span"), [(0, 0, 800), (10, 1, 800), (20_000, 1, 75), (1, 32_000_000, 37)]
)
def test_a_stretch_reaches_as_far_as_its_page_holds(rows: int, body: int, span: int) -> None:
    found: dict[str, list[Any]] = {"id": [1] * rows, "body": [bytes(body)] * rows}
    assert (choose_next_span(100, found), choose_next_span(1, found) >= 1) == (span, True)


def test_reading_makes_no_store(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    with pytest.raises(StoreUnusable, match="no store at"):
        use_store(f"sqlite:///{missing}", lambda store: store.now())
    with pytest.raises(StoreUnusable, match="in-memory"):
        use_store("sqlite://", lambda store: store.now())
    assert not missing.exists()


def test_a_file_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_absolute_url("sqlite:///a.db?durability=fast") == (
        f"sqlite:///{tmp_path}/a.db?durability=fast"
    )
    assert make_absolute_url("postgresql://h/d") == "postgresql://h/d"
