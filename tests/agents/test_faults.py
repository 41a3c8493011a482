"""Faults: a store that fails where the test says, and nowhere else."""

import pytest

from penstock import stores
from penstock.broker.local import Broker
from penstock.errors import InvalidInput, OutcomeUnknown, StoreBusy, StoreError
from penstock.model.message import Draft
from penstock.testing.faults import Faults
from tests.agents.scenes import bodies, publish

pytestmark = pytest.mark.anyio
BUSY = StoreBusy("no write lock")
CUT = OutcomeUnknown("cut off")


async def test_a_fault_before_a_verb_leaves_it_undone() -> None:
    faults = Faults()
    async with faults.wrap(await stores.open("sqlite://")) as store:
        faults.before("enqueue", BUSY)
        with pytest.raises(StoreBusy):
            await Broker(store).publish(Draft(body=b"x"))
        assert await bodies(Broker(store), "default") == []


async def test_a_fault_after_a_verb_finds_it_done() -> None:
    faults = Faults()
    async with faults.wrap(await stores.open("sqlite://")) as store:
        faults.after("enqueue", CUT)
        with pytest.raises(OutcomeUnknown):
            await Broker(store).publish(Draft(body=b"x"))
        assert await bodies(Broker(store), "default") == [b"x"]


async def test_the_fault_is_at_the_numbered_call_from_now_and_only_there() -> None:
    faults = Faults()
    async with faults.wrap(await stores.open("sqlite://")) as store:
        broker = Broker(store)
        await publish(broker, "default", 1)
        faults.before("enqueue", BUSY, call=2)
        outcomes = []
        for _ in range(3):
            try:
                outcomes.append(await publish(broker, "default", 1))
            except StoreBusy:
                outcomes.append([])
    assert outcomes == [[2], [], [3]]
    assert [(fault.verb, fault.when) for fault in faults.fired] == [("enqueue", "before")]


async def test_a_verb_no_store_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no verb 'enqeue'"):
        Faults().before("enqeue", BUSY)


async def test_during_an_outage_every_verb_fails_and_afterwards_none() -> None:
    faults = Faults()
    async with faults.wrap(await stores.open("sqlite://")) as store:
        with faults.outage(StoreError("away")):
            with pytest.raises(StoreError):
                await store.now()
            with pytest.raises(StoreError):
                await store.census()
        assert await store.now() > 0
        assert store.capabilities.engine == "sqlite"


async def test_a_sweep_fails_every_call_once_before_and_once_after() -> None:
    seen = []
    for faults in Faults.every_call(BUSY):
        async with faults.wrap(await stores.open("sqlite://")) as store:
            await store.now()
            with faults.armed():
                for verb in (store.now, store.census):
                    try:
                        await verb()
                    except StoreBusy:
                        seen.append((faults.fired[0].when, faults.calls[-1]))
    assert seen == [
        ("before", "now"),
        ("after", "now"),
        ("before", "census"),
        ("after", "census"),
    ]
