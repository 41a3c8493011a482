"""Lines of claims without a network: who is served, who has left, what is given back."""

import asyncio
from typing import Any

import pytest

from penstock import stores
from penstock.broker.interfaces.broker import ClaimResult
from penstock.broker.local import Broker
from penstock.errors import StoreUnreachable
from penstock.http.context import ClientDisconnected
from penstock.http.long_poll import ClaimKey, LongPoller
from penstock.model.message import Draft, State
from penstock.testing.faults import Faults

pytestmark = pytest.mark.anyio
WISH = ClaimKey("default", "default", (("default", ()),), None, False, None)


async def test_what_was_claimed_for_somebody_who_left_meanwhile_is_given_back() -> None:
    async with await stores.open("sqlite://") as store:
        broker, parking = Broker(store), LongPoller()
        claimed = asyncio.Event()
        claim = broker.claim

        async def slow(*args: Any, **kwargs: Any) -> ClaimResult:
            taken = await claim(*args, **kwargs)
            if taken.messages:
                waiter.fail(ClientDisconnected())
                claimed.set()
            return taken

        vars(broker)["claim"] = slow
        waiter = parking.join(broker, WISH, "me", 1, 5.0)
        published = await broker.publish(Draft())
        await claimed.wait()
        await parking.wait_until_drained()
        record = await broker.admin.get(published.id)
        assert (record.state, record.deliveries) == (State.READY, 0)
        assert isinstance(waiter.future.exception(), ClientDisconnected)


async def test_a_store_that_fails_fails_those_who_wait_and_no_others() -> None:
    faults = Faults()
    async with await stores.open("sqlite://") as opened:
        broker, parking = Broker(faults.wrap(opened)), LongPoller()
        with faults.outage(StoreUnreachable("away")):
            waiter = parking.join(broker, WISH, "me", 1, 5.0)
            with pytest.raises(StoreUnreachable):
                await waiter.future
        await parking.wait_until_drained()
        await broker.publish(Draft())
        again = parking.join(broker, WISH, "me", 1, 5.0)
        assert len((await again.future).messages) == 1


async def test_waiting_claims_are_answered_when_the_server_closes() -> None:
    async with await stores.open("sqlite://") as store:
        broker, parking = Broker(store), LongPoller()
        waiters = [parking.join(broker, WISH, "me", 1, 5.0) for _ in range(2)]
        assert (await parking.join(broker, WISH, "me", 1, 0.0).future).messages == []
        parking.close()
        assert [(await waiter.future).messages for waiter in waiters] == [[], []]
        assert (await parking.join(broker, WISH, "me", 1, 5.0).future).messages == []
        await parking.wait_until_drained()


async def test_many_claims_at_once_are_few_claims_of_the_store() -> None:
    faults = Faults()
    async with await stores.open("sqlite://") as opened:
        broker, parking = Broker(faults.wrap(opened)), LongPoller()
        await broker.publish_many([Draft()] * 100)
        faults.calls.clear()
        waiters = [parking.join(broker, WISH, "me", 1, 0.0) for _ in range(100)]
        ids = [(await waiter.future).messages[0].id for waiter in waiters]
        assert ids == sorted(ids)
        assert faults.calls.count("claim") == 1


async def test_an_empty_line_is_forgotten() -> None:
    async with await stores.open("sqlite://") as store:
        broker, parking = Broker(store), LongPoller()
        await parking.join(broker, WISH, "me", 1, 0.0).future
        await parking.wait_until_drained()
        other = ClaimKey("default", "default", (("default", ("t",)),), None, False, None)
        await parking.join(broker, other, "me", 1, 0.0).future
        assert list(parking.queues) == [other]
        await parking.wait_until_drained()
