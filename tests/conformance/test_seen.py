"""Keys that a message records when it is completed, so that consumers notice repeated events."""

import pytest

from penstock.errors import InvalidInput, LockLost, NotFound
from penstock.model.message import Draft, Nack
from penstock.model.store_types import Completion
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio
DAY = 86_400


async def test_a_key_is_seen_once_its_message_is_completed_and_only_in_its_queue(
    stage: Stage,
) -> None:
    await stage.queue("events", kind="broadcast")
    for name in ("a", "b"):
        await stage.broker.broadcasts.subscribe("events", name)
    seen = stage.broker.seen
    await stage.broker.publish(Draft(queue="events"))
    message = await stage.take("events/a")
    assert await seen("events/a", "order-7") is None
    await stage.broker.complete(message, b"1", seen=["order-7", "käse"])
    assert await stage.store.result(message.id) == b"1"
    assert await seen("events/a", "order-7") == await seen("events/a", "käse") == message.id
    assert await seen("events/b", "order-7") is None


async def test_a_key_is_found_in_a_store_of_many_queues(stage: Stage) -> None:
    # Some stores write the numbers of queues in hexadecimal.
    for number in range(20):
        await stage.queue(f"q{number}")
    for number in range(20):
        await stage.publish(queue=f"q{number}")
        message = await stage.take(f"q{number}")
        await stage.broker.complete(message, seen=["k"])
        assert await stage.broker.seen(f"q{number}", "k") == message.id


async def test_a_run_that_fails_or_has_lost_its_lease_records_nothing(stage: Stage) -> None:
    await stage.publish()
    message = await stage.take()
    await stage.broker.settle(message, Nack("no", delay=0.0))
    with pytest.raises(LockLost):
        await stage.broker.complete(message, seen=["k"])
    again = await stage.take()
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    with pytest.raises(LockLost):
        await stage.broker.complete(again, seen=["k"])
    assert await stage.broker.seen("default", "k") is None


async def test_a_key_is_forgotten_after_a_day(stage: Stage) -> None:
    await stage.publish()
    await stage.broker.complete(await stage.take(), seen=["k"])
    await stage.travel(DAY - 1)
    assert await stage.broker.seen("default", "k") is not None
    await stage.travel(2)
    assert await stage.broker.seen("default", "k") is None
    await stage.store.sweep_keys(100)
    # A message of the same dedup key is another matter.
    await stage.publish(queue="default")


async def test_a_batch_completes_those_with_and_without_keys(stage: Stage) -> None:
    await stage.publish_each(3)
    taken = await stage.claim(limit=3)
    keys = [("a",), (), ("b", "a")]
    items = [
        Completion(each.id, each.fence, b"r", key) for each, key in zip(taken, keys, strict=True)
    ]
    answers = await stage.broker.complete_many(items)
    assert [each.kind.value for each in answers] == ["done"] * 3
    assert await stage.places() == {"ended": 3}
    found = [await stage.broker.seen("default", key) for key in "abc"]
    assert found == [taken[2].id, taken[2].id, None]
    assert await stage.store.result(taken[1].id) == b"r"


async def test_keys_are_checked(stage: Stage) -> None:
    await stage.publish()
    message = await stage.take()
    for bad in ([""], ["x" * 201], [f"{number}" for number in range(101)]):
        with pytest.raises(InvalidInput):
            await stage.broker.complete(message, seen=bad)
    with pytest.raises(NotFound):
        await stage.broker.seen("missing", "k")
    with pytest.raises(InvalidInput):
        await stage.broker.seen("default", "")
