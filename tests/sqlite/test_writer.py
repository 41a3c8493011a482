"""One writer: what waits goes in together, and each caller gets its own answer."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from penstock.errors import StoreClosed, StoreError
from penstock.model.message import State, Verb
from penstock.model.store_types import Claim, Completion, Cursor, Move
from penstock.store import Store
from penstock.stores.sqlite.store import SqliteStore
from penstock.stores.sqlite.transaction import SqliteTransaction
from penstock.stores.sqlite.writer import FIRST, LAST, MAX_BATCH, NEXT, Work
from tests.sqlite.busy import all_waiting, hold_writer, together
from tests.sqlite.children import CAP
from tests.sqlite.scenes import claim, default_queue, open_file, places, publish

pytestmark = pytest.mark.anyio


def note(store: SqliteStore) -> list[str]:
    """The statements the writer begins from now on."""
    statements: list[str] = []
    store.database.writing.db.set_trace_callback(statements.append)
    return statements


def fail_with(error: Exception) -> Work[[], None]:
    async def fail(tx: SqliteTransaction) -> None:
        await tx.run("fact_set", name="bad", value="job")
        raise error

    return fail


async def break_a_constraint(tx: SqliteTransaction) -> None:
    await tx.run("fact_set", name="bad", value="job")
    await tx.run("name_take", queue_id=1, name="twice", id=1)
    await tx.run("name_take", queue_id=1, name="twice", id=2)


async def wait_for_something(tx: SqliteTransaction) -> None:
    await tx.run("fact_set", name="bad", value="job")
    await asyncio.sleep(0)


async def test_many_callers_share_a_few_transactions(store: SqliteStore) -> None:
    statements = note(store)
    results = await together(store, *(publish(store) for _ in range(300)))
    assert sorted(results) == [[id] for id in range(1, 301)]
    # One for the job that held the writer, and one for all the others.
    assert statements.count("COMMIT") == 2
    assert statements.count("BEGIN IMMEDIATE") == 2


async def test_a_transaction_takes_no_more_than_its_share(store: SqliteStore) -> None:
    statements = note(store)
    await together(store, *(publish(store) for _ in range(MAX_BATCH + 1)))
    assert statements.count("COMMIT") == 3
    assert await places(store) == {"message": MAX_BATCH + 1, "ready": MAX_BATCH + 1}


BAD_JOBS: dict[str, Work[[], object]] = {
    "an error of ours": fail_with(ValueError("no good")),
    "a constraint": break_a_constraint,
    "a wait": wait_for_something,
    "a statement with a wrong parameter": lambda tx: tx.run("fact", name=object()),
    "a statement without its parameter": lambda tx: tx.run("fact"),
    "a number too large": lambda tx: tx.run("fact", name=2**64),
    "a text that is no text": lambda tx: tx.run("fact", name="\ud800"),
}


@pytest.mark.parametrize("name", BAD_JOBS)
async def test_one_bad_job_fails_alone(store: SqliteStore, name: str) -> None:
    bad: Awaitable[Any] = store.database.write(BAD_JOBS[name])
    before, failed, after = await together(store, publish(store), bad, publish(store))
    assert sorted([*before, *after]) == [1, 2]
    assert isinstance(failed, Exception)
    assert await places(store) == {"message": 2, "ready": 2}


@pytest.mark.parametrize(
    "bad", [fail_with(ValueError("no good")), break_a_constraint, wait_for_something]
)
async def test_an_error_rolls_all_of_its_job_back(store: SqliteStore, bad: Work[[], None]) -> None:
    with pytest.raises((ValueError, StoreError, RuntimeError)):
        await store.database.write(bad)
    assert await store.database.look(SqliteTransaction.one, "fact", name="bad") is None
    assert not store.database.writing.db.in_transaction
    assert await publish(store) == [1]


async def test_a_failed_job_wakes_nobody(store: SqliteStore) -> None:
    async def wake_and_fail(tx: SqliteTransaction) -> None:
        tx.woken.add(1)
        raise ValueError("no good")

    wakes = store.wakes
    with pytest.raises(ValueError, match="no good"):
        await store.database.write(wake_and_fail)
    assert store.wakes == wakes


async def test_a_caller_that_was_cancelled_holds_up_nobody(store: SqliteStore) -> None:
    async with hold_writer(store):
        gone, stays = asyncio.ensure_future(publish(store)), asyncio.ensure_future(publish(store))
        await all_waiting()
        gone.cancel()
        await all_waiting()
        assert gone.cancelled()
    assert await stays == [2]
    assert await publish(store) == [3]


async def test_closing_finishes_what_is_waiting(path: Path) -> None:
    store = await open_file(path)
    async with hold_writer(store):
        waiting = [asyncio.ensure_future(publish(store)) for _ in range(10)]
        await all_waiting()
        closing = asyncio.ensure_future(store.close())
        await all_waiting()
    with anyio.fail_after(CAP):
        await closing
    assert sorted(await asyncio.gather(*waiting)) == [[id] for id in range(1, 11)]
    async with await open_file(path) as again:
        assert await places(again) == {"message": 10, "ready": 10}


AFTER_CLOSE: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "write": lambda store: store.create_scope("a", "b"),
    "publish": lambda store: store.enqueue([]),
    "claim": lambda store: store.claim(Claim((1,), "late")),
    "complete": lambda store: store.complete([Completion(1, 1)]),
    "look": lambda store: store.get(1),
    "read": lambda store: store.census(),
    "feed": lambda store: store.feed(Cursor(), 1),
    "wait": lambda store: store.wait_ready([1], 1),
}


@pytest.mark.parametrize("name", AFTER_CLOSE)
async def test_a_closed_store_says_that_it_is_closed(path: Path, name: str) -> None:
    store = await open_file(path)
    await store.close()
    with pytest.raises(StoreClosed, match=r"queue\.db"):
        await AFTER_CLOSE[name](store)


async def test_closing_twice_is_closing_once(path: Path) -> None:
    store = await open_file(path)
    store.notifier.wait([1])
    await store.close()
    await store.close()


async def test_closing_leaves_no_thread_behind(path: Path) -> None:
    before = set(threading.enumerate())
    store = await open_file(path)
    await publish(store)
    await store.census()
    await store.close()
    left = set(threading.enumerate()) - before
    # asyncio keeps the threads of its own pool.
    assert [thread.name for thread in left if thread.name.startswith("penstock")] == []


async def test_settles_run_before_claims_and_reclaims_last(store: SqliteStore) -> None:
    ran: list[str] = []

    async def job(tx: SqliteTransaction, name: str) -> None:
        ran.append(name)

    await together(
        store,
        store.database.write_in(LAST, job, "reclaim"),
        store.database.write_in(NEXT, job, "claim"),
        store.database.write_in(FIRST, job, "settle"),
        store.database.write_in(LAST, job, "reclaim again"),
        store.database.write_in(NEXT, job, "claim again"),
        store.database.write_in(FIRST, job, "settle again"),
    )
    assert ran == ["settle", "settle again", "claim", "claim again", "reclaim", "reclaim again"]


async def test_each_verb_has_its_place_in_the_transaction(store: SqliteStore) -> None:
    await publish(store, 3)
    completed, reclaimed = await claim(store, 2)
    queue = await default_queue(store)
    expired = Move(
        reclaimed.id, reclaimed.fence, reclaimed.flags, Verb.RECLAIM, State.READY, 0, 1,
        expired_by=2**62,
    )  # fmt: skip
    statements = note(store)
    await together(
        store,
        store.settle([expired]),
        store.claim(Claim((queue.id,), "tester")),
        store.complete([Completion(completed.id, completed.fence)]),
    )
    assert statements.count("COMMIT") == 2
    text = "\n".join(statements)
    marks = [text.index(mark) for mark in ("'complete', 'completed'", "LIMIT", "AND lease_until <")]
    assert marks == sorted(marks)


async def test_a_job_that_waits_in_the_batch_sees_what_came_before_it(store: SqliteStore) -> None:
    await publish(store)
    (leased,) = await claim(store)
    done, again = await together(
        store,
        store.complete([Completion(leased.id, leased.fence)]),
        store.complete([Completion(leased.id, leased.fence)]),
    )
    assert [answer.kind for (answer,) in (done, again)] == ["done", "already"]


async def test_the_writer_lives_on_after_a_database_error(store: SqliteStore) -> None:
    async def ask_nonsense(tx: SqliteTransaction) -> None:
        tx.db.execute("SELECT nonsense")

    with pytest.raises(StoreError, match="nonsense") as failed:
        await store.database.write(ask_nonsense)
    assert isinstance(failed.value.__cause__, sqlite3.OperationalError)
    assert await publish(store) == [1]


async def test_a_message_that_lost_its_ticket_holds_up_nobody(store: SqliteStore) -> None:
    async def lose(tx: SqliteTransaction) -> None:
        tx.db.execute("DELETE FROM penstock_ready")

    (id,) = await publish(store)
    await store.database.write(lose)
    with anyio.fail_after(CAP):
        (answer,) = await store.cancel([id])
    assert answer.kind == "busy"
    assert await publish(store) == [2]


async def test_a_writer_that_ends_tells_everybody(store: SqliteStore) -> None:
    """Whatever ended it, nobody waits for ever: here somebody closed the file of its gate."""
    descriptor, store.database.write_turns.file = store.database.write_turns.file, -1
    for _ in range(2):
        with pytest.raises(StoreError, match="the writer thread failed"):
            await publish(store)
    store.database.write_turns.file = descriptor
