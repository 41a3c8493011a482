"""What becomes of calls when the server, a session or somebody's transaction is in the way."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pymysql
import pytest

from penstock.errors import OutcomeUnknown, StoreUnreachable
from penstock.model.message import State, Verb
from penstock.model.store_types import AnswerKind, Claim, Completion, Dedupe, Entry, Extension, Move
from penstock.stores.mariadb import connection, statement
from penstock.stores.mariadb.connection import parse
from penstock.stores.mariadb.store import MariaStore, open_at
from tests.servers.mariadb import MariaDB

pytestmark = pytest.mark.anyio
QUEUE = 2


@pytest.fixture
def holder(mariadb_server: MariaDB, url: str) -> Iterator[pymysql.cursors.Cursor]:
    """Somebody with an open transaction."""
    with mariadb_server.connect(url.rpartition("/")[2]) as connection:
        connection.begin()
        with connection.cursor() as cursor:
            yield cursor


def entry(**fields: Any) -> Entry:
    return Entry(QUEUE, "test", b"", **fields)


async def claim(store: MariaStore, count: int) -> list[Completion]:
    await store.enqueue([entry()] * count)
    taken = await store.claim(Claim((QUEUE,), "tester", count))
    return [Completion(each.id, each.fence) for each in taken.messages]


async def test_a_lease_that_somebody_holds_is_busy_alone(
    store: MariaStore, holder: pymysql.cursors.Cursor
) -> None:
    held, *free = await claim(store, 5)
    holder.execute(f"SELECT * FROM penstock_lease WHERE id = {held.id} FOR UPDATE")
    started = time.monotonic()
    extended = await store.extend([Extension(each.id, each.fence, 60.0) for each in [held, *free]])
    completed = await store.complete([held, *free])
    assert time.monotonic() - started < 1
    assert [each.kind for each in extended] == [AnswerKind.BUSY] + [AnswerKind.DONE] * 4
    assert [each.kind for each in completed] == [AnswerKind.BUSY] + [AnswerKind.DONE] * 4


async def test_a_move_of_a_lease_that_somebody_holds_is_busy_alone(
    store: MariaStore, holder: pymysql.cursors.Cursor
) -> None:
    held, free = await claim(store, 2)
    holder.execute(f"SELECT * FROM penstock_lease WHERE id = {held.id} FOR UPDATE")
    moves = [Move(each.id, each.fence, 0, Verb.NACK, State.READY, 1, 1) for each in (held, free)]
    answers = await store.settle(moves)
    assert [each.kind for each in answers] == [AnswerKind.BUSY, AnswerKind.DONE]


async def test_a_key_that_somebody_is_about_to_publish_is_busy_alone(
    store: MariaStore, holder: pymysql.cursors.Cursor
) -> None:
    entries = [entry(dedup=Dedupe(key, b"d", 60.0)) for key in ("key:a", "key:b")]
    store.enqueue_on(holder.connection, entries[:1])
    started = time.monotonic()
    published = await store.enqueue(entries)
    assert time.monotonic() - started < 1
    assert [each.code for each in published] == ["BUSY", None]


async def test_what_somebody_holds_is_claimed_by_nobody_and_waited_for_by_nobody(
    store: MariaStore, holder: pymysql.cursors.Cursor
) -> None:
    first, second = [each.id for each in await store.enqueue([entry(), entry()])]
    holder.execute(f"SELECT * FROM penstock_ready WHERE id = {first} FOR UPDATE")
    started = time.monotonic()
    taken = await store.claim(Claim((QUEUE,), "tester", 10))
    assert time.monotonic() - started < 1
    assert [each.id for each in taken.messages] in ([second], [])


async def test_sessions_that_the_server_ended_cost_one_call_at_most(
    store: MariaStore, mariadb_server: MariaDB, url: str
) -> None:
    await store.enqueue([entry()])
    name = url.rpartition("/")[2]
    for (number,) in mariadb_server.execute(
        f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"
    ):
        mariadb_server.execute(f"KILL {number}")
    with suppress(StoreUnreachable, OutcomeUnknown):
        await store.enqueue([entry()])
    await store.enqueue([entry()])


async def test_a_server_that_was_killed_has_what_it_confirmed_and_is_used_again() -> None:
    with MariaDB() as server:
        async with await open_at(parse(server.create_database())) as store:
            (held, *_) = await claim(store, 3)
            server.kill()
            with pytest.raises((StoreUnreachable, OutcomeUnknown)):
                await store.complete([held])
            with pytest.raises(StoreUnreachable):
                await store.now()
            server.start()
            assert [each.kind for each in await store.complete([held])] == [AnswerKind.DONE]
            assert (await store.claim(Claim((QUEUE,), "tester", 1))).messages == []
            (next_one,) = await claim(store, 1)
            assert next_one.fence > held.fence


async def test_the_census_has_a_time_limit_of_its_own(
    store: MariaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = statement.MariaStatement("SELECT 1, 'message', 1, 1 FROM dual WHERE NOT SLEEP(3)")
    monkeypatch.setitem(statement.SQL, "census", slow)
    monkeypatch.setattr(connection, "SCAN_TIMEOUT_S", 0.1)
    with pytest.raises(StoreUnreachable):
        await store.census()
    monkeypatch.undo()
    assert await store.census() == []
