"""What a consumer says while it holds a message: extensions and progress."""

import pytest

from penstock.model.message import Nack
from penstock.model.store_types import Lock
from tests.conformance.stage import Stage, micros

pytestmark = pytest.mark.anyio


async def test_an_extension_is_counted_from_now_by_the_stores_clock(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.travel(20)
    before = await stage.store.now()
    answer = await stage.broker.extend(leased, 30)
    assert answer.lease_until is not None
    assert before + micros(30) <= answer.lease_until <= await stage.store.now() + micros(30)
    assert (await stage.record(id)).lease_until == answer.lease_until


async def test_an_extension_never_shortens_a_lease(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    longer = await stage.broker.extend(leased, 600)
    shorter = await stage.broker.extend(leased, 1)
    assert longer.lease_until is not None
    assert longer.lease_until > leased.lease_until
    assert shorter.lease_until == longer.lease_until
    assert (await stage.record(id)).lease_until == longer.lease_until


async def test_an_extension_counts_nothing_and_leaves_no_row(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.broker.extend(leased, 600)
    await stage.broker.complete(leased)
    assert len(await stage.life(id)) == 1
    assert (await stage.record(id)).deliveries == 1


async def test_a_lease_remembers_how_long_it_was_asked_for_last(stage: Stage) -> None:
    ids = [await stage.publish(lease=40), await stage.publish()]
    own, plain = await stage.claim(limit=2, lease=7)
    await stage.travel(3)
    await stage.broker.extend(plain, 5)
    leases = await stage.store.leases([Lock(own.id, own.fence), Lock(plain.id, plain.fence)])
    assert [lease.id for lease in leases if lease] == ids
    assert [lease.length for lease in leases if lease] == [40, 5]


@pytest.mark.parametrize(
    ("preset", "timeout", "lasts"),
    [
        ("default", None, 30),
        ("scaiqueue", None, 30),
        ("relay", None, 30),
        ("codeq", None, 300),
        ("faststream", None, 600),
        ("queuectl", None, 300),
        ("queuectl", 100, 300),
        ("queuectl", 1_000, 1_060),
    ],
)
async def test_a_preset_leases_as_long_as_its_system(
    stage: Stage, preset: str, timeout: float | None, lasts: float
) -> None:
    await stage.queue("work", preset)
    await stage.publish(queue="work", timeout=timeout)
    before = await stage.store.now()
    leased = await stage.take("work")
    assert before + micros(lasts) <= leased.lease_until <= await stage.store.now() + micros(lasts)


async def test_progress_is_shown_while_it_is_claimed(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.broker.progress(leased, 40, "downloading")
    await stage.broker.progress(leased, percent=60)
    record = await stage.record(id)
    assert (record.percent, record.note) == (60, "downloading")
    await stage.broker.settle(leased, Nack(delay=0))
    record = await stage.record(id)
    assert (record.percent, record.note) == (None, None)
