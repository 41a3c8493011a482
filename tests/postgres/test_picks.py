"""Which messages a claim takes where several lines meet: by rank over all of them."""

import pytest

from penstock.model.store_types import Claim, Entry
from penstock.stores.postgres.store import PostgresStore
from tests.postgres.scenes import QUEUE, execute

pytestmark = pytest.mark.anyio

ANOTHER = """
INSERT INTO penstock.queue (scope_id, name, settings)
SELECT scope_id, 'another', settings FROM penstock.queue WHERE name = 'default' RETURNING id
"""


async def test_a_claim_for_types_takes_the_best_of_them_first(store: PostgresStore) -> None:
    entries = [Entry(QUEUE, type, b"", rank=rank) for type, rank in (("a", 5), ("a", 0), ("b", -5))]
    ids = [each.id for each in await store.enqueue(entries)]
    taken = await store.claim(Claim((QUEUE,), "tester", 1, types=("a", "b")))
    assert [each.id for each in taken.messages] == [ids[2]]
    taken = await store.claim(Claim((QUEUE,), "tester", 1, types=("b", "a")))
    assert [each.id for each in taken.messages] == [ids[1]]


async def test_a_claim_on_queues_in_one_line_takes_the_best_of_all_first(
    store: PostgresStore, url: str
) -> None:
    other = int((await execute(url, ANOTHER))[0]["id"])
    entries = [Entry(QUEUE, "a", b"", rank=5), Entry(other, "a", b"", rank=-5)]
    ids = [each.id for each in await store.enqueue(entries)]
    taken = await store.claim(Claim((QUEUE, other), "tester", 1))
    assert [each.id for each in taken.messages] == [ids[1]]


async def test_a_rank_may_be_a_moment(store: PostgresStore) -> None:
    """As a deadline in milliseconds is."""
    ranks = (4_000_000_000_000, 3_000_000_000_000)
    ids = [(await store.enqueue([Entry(QUEUE, "a", b"", rank=rank)]))[0].id for rank in ranks]
    taken = await store.claim(Claim((QUEUE,), "tester", 2))
    assert [each.id for each in taken.messages] == ids[::-1]
