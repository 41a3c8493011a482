"""Bounds of the retries of an SQL server: a store that only conflicts is left after so many."""

from collections.abc import Mapping
from typing import Any

import asyncpg
import pytest

from penstock.broker.local import Broker
from penstock.errors import Busy, StoreBusy
from penstock.model.message import Dedup, Draft, SettleReject
from penstock.model.store_types import AnswerKind, Completion, Entry
from penstock.retry_policies import DEAD_LETTER, LOCKED, PUBLISH, TRANSACTION
from penstock.stores.postgres.store import PostgresStore
from penstock.stores.postgres.transaction import PostgresDriver, PostgresTransaction
from penstock.stores.sql.database import Mode
from tests.postgres.scenes import QUEUE, claim, connect, publish

pytestmark = pytest.mark.anyio


class DeadlockingDriver(PostgresDriver):
    """Counts transactions, and ends each of them with a deadlock while `deadlocks` is set."""

    def __init__(self, driver: PostgresDriver) -> None:
        super().__init__(driver.where)
        self.deadlocks = True
        self.count = 0

    async def begin(self, connection: asyncpg.Connection, mode: Mode) -> PostgresTransaction:
        tx = await super().begin(connection, mode)
        self.count += 1
        if self.deadlocks:
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return tx

    async def fetch(
        self, connection: asyncpg.Connection, statement: str, values: Mapping[str, Any]
    ) -> list[Any]:
        if self.deadlocks and statement in ("complete", "free_leases"):
            raise asyncpg.LockNotAvailableError("canceling statement due to lock timeout")
        return await super().fetch(connection, statement, values)


@pytest.fixture
def driver(store: PostgresStore) -> DeadlockingDriver:
    assert isinstance(store.database.driver, PostgresDriver)
    store.database.driver = found = DeadlockingDriver(store.database.driver)
    return found


async def test_a_write_is_tried_so_often(store: PostgresStore, driver: DeadlockingDriver) -> None:
    with pytest.raises(StoreBusy, match="deadlock"):
        await store.end_tick("agent", "tester", "done")
    assert driver.count == TRANSACTION.attempts


async def test_a_write_succeeds_after_a_conflict(
    store: PostgresStore, driver: DeadlockingDriver
) -> None:
    driver.deadlocks = False
    assert await store.claim_tick("agent", 1.0, "tester")
    assert driver.count == 1


async def test_a_publish_with_a_key_is_one_transaction(
    store: PostgresStore, driver: DeadlockingDriver
) -> None:
    (published,) = await store.enqueue([Entry(QUEUE, "test", b"", name="one")])
    assert (published.code, driver.count) == (Busy.code, 1)


async def test_a_broker_publishes_so_often_and_nothing_multiplies(
    store: PostgresStore, driver: DeadlockingDriver
) -> None:
    driver.deadlocks = False
    broker = Broker(store)
    await broker.publish(Draft())
    driver.deadlocks, driver.count = True, 0
    with pytest.raises(Busy):
        await broker.publish(Draft(dedup=Dedup("key")))
    assert 2 <= driver.count <= PUBLISH.attempts + 1


async def test_the_items_of_a_batch_share_their_retries(
    store: PostgresStore, driver: DeadlockingDriver
) -> None:
    driver.deadlocks = False
    await publish(store, 20)
    held = await claim(store)
    driver.deadlocks, driver.count = True, 0
    answers = await store.complete([Completion(each.id, each.fence) for each in held])
    assert {answer.kind for answer in answers} == {AnswerKind.BUSY}
    # One of the set with keys, one for each item, and the retries.
    assert driver.count <= 1 + len(held) + LOCKED.attempts - 1


async def dead_letter(store: PostgresStore) -> int:
    (id,) = await publish(store, 1)
    (leased,) = await claim(store)
    await Broker(store).settle(leased, SettleReject("no"))
    return id


@pytest.mark.parametrize("verb", ["redrive", "purge_dead"])
async def test_a_locked_dead_letter_is_tried_so_often(
    store: PostgresStore, driver: DeadlockingDriver, url: str, verb: str
) -> None:
    driver.deadlocks = False
    id = await dead_letter(store)
    async with connect(url) as other, other.transaction():
        await other.execute(f"SELECT 1 FROM penstock.dead WHERE id = {id} FOR UPDATE")
        driver.count = 0
        (answer,) = await getattr(store, verb)([id])
    assert answer.kind is AnswerKind.BUSY
    assert 2 <= driver.count <= DEAD_LETTER.attempts + 1
