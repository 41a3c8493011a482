"""A publish that was sent and not answered: repeated if a key tells the two apart."""

from collections.abc import AsyncIterator

import pytest

from penstock import stores
from penstock.broker import group_commit
from penstock.broker.local import Broker
from penstock.errors import OutcomeUnknown, StoreUnreachable
from penstock.model.message import Dedup, Draft
from penstock.model.store_types import Cursor
from penstock.store import Store
from penstock.testing.faults import Faults

pytestmark = pytest.mark.anyio
UNKNOWN = OutcomeUnknown("no answer")
KEYED = Draft(body=b"1", dedup=Dedup("order-1"))


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await stores.open("sqlite://") as opened:
        yield opened


async def published(store: Store) -> int:
    return len((await store.feed(Cursor(), 100)).messages)


async def test_a_keyed_publish_whose_answer_was_lost_is_found_again(store: Store) -> None:
    faults = Faults()
    broker = Broker(faults.wrap(store))
    faults.after("enqueue", UNKNOWN)
    outcome = await broker.publish(KEYED)
    assert (outcome.id, outcome.duplicate) == (1, True)
    assert await published(store) == 1


async def test_a_keyed_publish_that_was_lost_on_its_way_is_published(store: Store) -> None:
    faults = Faults()
    broker = Broker(faults.wrap(store))
    faults.before("enqueue", UNKNOWN)
    faults.before("enqueue", StoreUnreachable("away"), call=2)
    outcome = await broker.publish(KEYED)
    assert (outcome.id, outcome.duplicate) == (1, False)
    assert await published(store) == 1


async def test_without_a_key_nothing_is_repeated(store: Store) -> None:
    faults = Faults()
    broker = Broker(faults.wrap(store))
    faults.after("enqueue", UNKNOWN)
    with pytest.raises(OutcomeUnknown):
        await broker.publish(Draft(body=b"1", name="order-1"))
    assert faults.counts["enqueue"] == 1
    assert await published(store) == 1


async def test_a_store_that_stays_away_leaves_the_outcome_unknown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "RETRY_DELAY_S", 0.0)
    faults = Faults()
    broker = Broker(faults.wrap(store))
    await broker.publish(Draft(body=b"0"))
    faults.before("enqueue", UNKNOWN)
    for call in range(2, 30):
        faults.before("enqueue", StoreUnreachable("away"), call=call)
    with pytest.raises(OutcomeUnknown, match="may have been published"):
        await broker.publish(KEYED)
