"""A publish that was sent and not answered: repeated if a key tells the two apart."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from penstock import stores
from penstock.broker import group_commit
from penstock.broker.local import Broker
from penstock.errors import Busy, OutcomeUnknown, StoreUnreachable
from penstock.model.message import Dedup, Draft
from penstock.model.store_types import Cursor, Entry, Published
from penstock.retry_policies import RetryPolicy
from penstock.store import Store
from penstock.testing.faults import Faults

pytestmark = pytest.mark.anyio
UNKNOWN = OutcomeUnknown("no answer")
AT_ONCE = RetryPolicy(attempts=20, delay=0.0, deadline=60.0)
KEYED = Draft(body=b"1", dedup=Dedup("order-1"))


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await stores.open("sqlite://") as opened:
        yield opened


async def count_published(store: Store) -> int:
    return len((await store.feed(Cursor(), 100)).messages)


async def test_a_keyed_publish_whose_answer_was_lost_is_found_again(store: Store) -> None:
    faults = Faults()
    broker = Broker(faults.wrap(store))
    faults.after("enqueue", UNKNOWN)
    outcome = await broker.publish(KEYED)
    assert (outcome.id, outcome.duplicate) == (1, True)
    assert await count_published(store) == 1


async def test_a_keyed_publish_that_was_lost_on_its_way_is_published(store: Store) -> None:
    faults = Faults()
    broker = Broker(faults.wrap(store))
    faults.before("enqueue", UNKNOWN)
    faults.before("enqueue", StoreUnreachable("away"), call=2)
    outcome = await broker.publish(KEYED)
    assert (outcome.id, outcome.duplicate) == (1, False)
    assert await count_published(store) == 1


async def test_without_a_key_nothing_is_repeated(store: Store) -> None:
    faults = Faults()
    broker = Broker(faults.wrap(store))
    faults.after("enqueue", UNKNOWN)
    with pytest.raises(OutcomeUnknown):
        await broker.publish(Draft(body=b"1", name="order-1"))
    assert faults.counts["enqueue"] == 1
    assert await count_published(store) == 1


async def test_a_store_that_stays_away_leaves_the_outcome_unknown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "PUBLISH", AT_ONCE)
    faults = Faults()
    broker = Broker(faults.wrap(store))
    await broker.publish(Draft(body=b"0"))
    faults.before("enqueue", UNKNOWN)
    for call in range(2, 30):
        faults.before("enqueue", StoreUnreachable("away"), call=call)
    with pytest.raises(OutcomeUnknown, match="may have been published"):
        await broker.publish(KEYED)


class LockedStore:
    """A store in which another transaction holds the lock of a name for some publishes."""

    def __init__(self, store: Store, name: str, times: int) -> None:
        self.store = store
        self.name = name
        self.times = times
        self.asked: list[list[str | None]] = []

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        self.asked.append([entry.name for entry in entries])
        held = [entry.name == self.name and len(self.asked) <= self.times for entry in entries]
        free = [entry for entry, locked in zip(entries, held, strict=True) if not locked]
        written = iter(await self.store.enqueue(free, atomic=atomic) if free else ())
        return [Published(0, code=Busy.code) if locked else next(written) for locked in held]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@pytest.mark.parametrize(("times", "codes"), [(2, [None] * 3), (99, [None, "BUSY", None])])
async def test_only_the_locked_entries_of_a_batch_are_retried_within_bounds(
    store: Store, times: int, codes: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "PUBLISH", AT_ONCE)
    locked: Any = LockedStore(store, "b", times)
    drafts = [Draft(name=name) for name in "abc"]
    answers = await Broker(locked).publish_many(drafts)
    assert [answer.code for answer in answers] == codes
    assert locked.asked[0] == ["a", "b", "c"]
    assert locked.asked[1:] == [["b"]] * min(times, AT_ONCE.attempts - 1)
