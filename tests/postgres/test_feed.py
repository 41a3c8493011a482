"""The export waits for transactions that may still write before what it has seen."""

import pytest

from penstock.stores.postgres.store import PostgresStore
from penstock.ticket import Cursor, Entry
from tests.postgres.scenes import QUEUE, connected, publish

pytestmark = pytest.mark.anyio


async def exported(store: PostgresStore) -> list[int]:
    return [each.id for each in (await store.feed(Cursor(0, 0, 0), 100)).messages]


async def test_what_an_open_transaction_has_written_comes_before_what_was_written_later(
    store: PostgresStore, url: str
) -> None:
    before = await publish(store)
    async with connected(url) as writer:
        transaction = writer.transaction()
        await transaction.start()
        (open_,) = await store.aenqueue_on(writer, [Entry(QUEUE, "test", b"")])
        after = await publish(store)
        assert await exported(store) == before
        await transaction.commit()
    assert await exported(store) == [*before, open_.id, *after]
