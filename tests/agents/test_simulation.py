"""The simulation itself: virtual time, handlers, and a day in seconds."""

from typing import Any

import pytest

from penstock.errors import InvalidInput, InvalidState, StoreBusy, StoreError
from penstock.model.message import Draft, Fail, Leased, State
from penstock.model.queue import Schedule
from penstock.testing.faults import Faults
from penstock.testing.simulation import START, ManualClock, Simulation
from tests.agents.scenes import hold, publish, state, ticks

pytestmark = pytest.mark.anyio
SECOND = 1_000_000


async def test_a_handler_that_returns_completes_and_may_leave_a_result(
    simulation: Simulation,
) -> None:
    async def double(message: Leased) -> bytes:
        return message.body * 2

    simulation.handle("default", double)
    published = await simulation.broker.publish(Draft(body=b"ab"))
    await simulation.run_until_idle()
    assert await state(simulation.broker, published.id) is State.COMPLETED
    assert await simulation.broker.admin.result(published.id) == b"abab"


async def test_a_handler_that_raises_is_retried_with_backoff_until_dead(
    simulation: Simulation,
) -> None:
    ran_at: list[int] = []

    def fail(message: Leased) -> None:
        ran_at.append((simulation.clock() - START) // SECOND)
        raise ValueError("no")

    await simulation.broker.admin.create_queue("jobs", preset_name="queuectl")
    simulation.handle("jobs", fail)
    (id,) = await publish(simulation.broker, "jobs", 1)
    await simulation.advance("1m")
    record = await simulation.broker.admin.get(id)
    assert ran_at == [0, 2, 6]
    assert (record.state, record.reason, record.error) == (
        State.DEAD,
        "retries_exhausted",
        "ValueError: no",
    )


async def test_a_handler_may_settle_its_message_itself(simulation: Simulation) -> None:
    async def give_up(message: Leased) -> None:
        await simulation.broker.settle(message, Fail("bad input"))

    simulation.handle("default", give_up)
    (id,) = await publish(simulation.broker, "default", 1)
    await simulation.run_until_idle()
    assert await state(simulation.broker, id) is State.FAILED


async def test_a_handler_may_publish_what_the_next_one_handles(simulation: Simulation) -> None:
    seen: list[bytes] = []

    async def forward(message: Leased) -> None:
        await simulation.broker.publish(Draft(queue="second", body=message.body))

    await simulation.broker.admin.create_queue("second")
    simulation.handle("second", lambda message: seen.append(message.body))
    simulation.handle("default", forward)
    await publish(simulation.broker, "default", 3)
    await simulation.run_until_idle()
    assert seen == [b"0", b"1", b"2"]


async def test_handlers_serve_the_queue_of_their_scope(simulation: Simulation) -> None:
    seen: list[bytes] = []
    await simulation.broker.admin.create_scope("sales")
    await simulation.broker.admin.create_queue("default", scope="sales")
    simulation.handle("default", lambda message: seen.append(message.body), scope="sales")
    await simulation.broker.publish(Draft(body=b"here"), scope="sales")
    await simulation.broker.publish(Draft(body=b"there"))
    await simulation.run_until_idle()
    assert seen == [b"here"]


async def test_a_handler_that_returns_neither_bytes_nor_none_is_an_error(
    simulation: Simulation,
) -> None:
    await publish(simulation.broker, "default", 1)
    handler: Any = len
    simulation.handle("default", lambda message: handler(message.body))
    with pytest.raises(InvalidInput, match="bytes or None, not int"):
        await simulation.run_until_idle()


async def test_a_flow_that_never_rests_is_an_error(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def again(message: Leased) -> None:
        await simulation.broker.publish(Draft())

    monkeypatch.setattr("penstock.testing.simulation.MAX_RUNS", 50)
    simulation.handle("default", again)
    await publish(simulation.broker, "default", 1)
    with pytest.raises(InvalidState, match="handlers are not idle after 50 rounds"):
        await simulation.run_until_idle()


async def test_handlers_run_at_the_moment_something_is_due(simulation: Simulation) -> None:
    at: list[float] = []
    simulation.handle("default", lambda message: at.append((simulation.clock() - START) / SECOND))
    for delay in (0.25, 3.0, 3_599.5):
        await simulation.broker.publish(Draft(delay=delay))
    await simulation.advance("1h")
    assert at == [0.25, 3.0, 3_599.5]
    assert simulation.clock() == START + 3_600 * SECOND


async def test_a_lost_lease_is_handled_again_right_after_its_end(simulation: Simulation) -> None:
    at: list[float] = []
    await hold(simulation.broker, "default")
    simulation.handle("default", lambda message: at.append((simulation.clock() - START) / SECOND))
    await simulation.advance("1h")
    assert at == [pytest.approx(30.0, abs=0.01)]


async def test_time_that_passes_in_the_simulation_never_looks_like_an_outage(
    simulation: Simulation,
) -> None:
    await simulation.advance("3h")
    await hold(simulation.broker, "default", lease=1.0)
    await simulation.advance("1.5s")
    assert (await simulation.store.expired_leases(1)).leases == []


async def test_a_day_with_a_schedule_and_a_held_lease_passes(simulation: Simulation) -> None:
    seen: list[int] = []
    await simulation.broker.admin.create_queue("held", lease=40_000.0)
    await hold(simulation.broker, "held")
    await simulation.broker.admin.schedule(Schedule("s", "*/10 * * * *", Draft()))
    simulation.handle("default", lambda message: seen.append(message.id))
    await simulation.advance("24h")
    assert len(seen) == 144
    assert len(await ticks(simulation.broker, "default")) == 144


async def test_nothing_moves_but_when_it_is_asked_to(simulation: Simulation) -> None:
    published = await simulation.broker.publish(Draft(delay=1.0))
    simulation.clock.advance(60)
    assert await state(simulation.broker, published.id) is State.SCHEDULED
    await simulation.run_until_idle()
    assert await state(simulation.broker, published.id) is State.READY


async def test_a_duration_that_makes_no_sense_is_refused(simulation: Simulation) -> None:
    with pytest.raises(InvalidInput, match="duration 'soon'"):
        await simulation.advance("soon")


async def test_an_outage_in_the_middle_only_delays() -> None:
    faults = Faults()
    seen: list[bytes] = []
    async with Simulation.open(faults=faults) as simulation:
        simulation.handle("default", lambda message: seen.append(message.body))
        await publish(simulation.broker, "default", 2)
        with faults.outage(StoreError("away")):
            await simulation.advance("1h")
        assert seen == []
        await simulation.advance("1s")
    assert seen == [b"0", b"1"]


async def test_a_fault_in_a_handlers_claim_is_made_up_for_a_second_later() -> None:
    faults = Faults()
    at: list[int] = []
    async with Simulation.open(faults=faults) as simulation:
        simulation.handle("default", lambda message: at.append(simulation.clock() - START))
        await publish(simulation.broker, "default", 1)
        faults.before("claim", StoreBusy("no lock"))
        await simulation.advance("10s")
    assert at == [SECOND]


async def test_the_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(5)
    clock.advance(1.5)
    assert (clock(), clock()) == (1_500_005, 1_500_005)
