"""Cron: time zones, changes of the clock, missed ticks, and never a tick twice."""

import asyncio
from pathlib import Path

import pytest

from penstock.agents.scheduler import Scheduler
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.model.message import Draft
from penstock.model.queue import Missed, Schedule
from penstock.testing.simulation import ManualClock, Simulation
from tests.agents.scenes import moment, ticks, two_stores

pytestmark = pytest.mark.anyio


async def list_fired(
    start: str, duration: str, cron: str, timezone: str = "Europe/Paris", nodes: int = 1
) -> list[str]:
    """The ticks of a schedule while time passes."""
    async with Simulation.open(clock=ManualClock(moment(start)), nodes=nodes) as simulation:
        schedule = Schedule("s", cron, Draft(), timezone=timezone)
        await simulation.broker.admin.schedule(schedule)
        await simulation.advance(duration)
        return await ticks(simulation.broker, "default")


async def test_a_schedule_ticks_in_its_own_time_zone() -> None:
    start = "2026-01-15T00:00:00+00:00"
    assert await list_fired(start, "24h", "0 9 * * *", "UTC") == ["2026-01-15T09:00:00+00:00"]
    assert await list_fired(start, "24h", "0 9 * * *") == ["2026-01-15T08:00:00+00:00"]
    assert await list_fired(start, "24h", "0 9 * * *", "Asia/Kolkata") == [
        "2026-01-15T03:30:00+00:00"
    ]


async def test_a_daily_tick_follows_local_time_over_the_change() -> None:
    assert await list_fired("2026-03-28T00:00:00+00:00", "48h", "0 9 * * *") == [
        "2026-03-28T08:00:00+00:00",
        "2026-03-29T07:00:00+00:00",
    ]


async def test_a_daily_tick_in_the_hour_that_does_not_exist_fires_right_after_it() -> None:
    assert await list_fired("2026-03-28T12:00:00+00:00", "48h", "30 2 * * *") == [
        "2026-03-29T01:00:00+00:00",
        "2026-03-30T00:30:00+00:00",
    ]


async def test_a_daily_tick_in_the_hour_that_comes_twice_fires_once() -> None:
    assert await list_fired("2026-10-24T12:00:00+00:00", "48h", "30 2 * * *") == [
        "2026-10-25T00:30:00+00:00",
        "2026-10-26T01:30:00+00:00",
    ]


async def test_a_schedule_made_in_the_second_of_the_two_hours_does_not_fire_for_the_first() -> None:
    assert await list_fired("2026-10-25T01:10:00+00:00", "1h", "30 2 * * *") == []


async def test_an_hourly_tick_fires_every_hour_over_both_changes() -> None:
    for day in ("2026-03-29", "2026-10-25"):
        expected = [f"{day}T{hour:02}:00:00+00:00" for hour in range(5)]
        before = moment(f"{day}T00:00:00+00:00") - 1_000_000
        async with Simulation.open(clock=ManualClock(before)) as simulation:
            schedule = Schedule("s", "0 * * * *", Draft(), timezone="Europe/Paris")
            await simulation.broker.admin.schedule(schedule)
            await simulation.advance("4h30m")
            assert await ticks(simulation.broker, "default") == expected


async def list_missed(policy: Missed, cron: str, asleep: float) -> list[str]:
    """What fires when nobody was there for a while, and one regular tick after."""
    async with Simulation.open() as simulation:
        await simulation.broker.admin.schedule(Schedule("s", cron, Draft(), missed=policy))
        simulation.clock.advance(asleep)
        await simulation.advance("1h")
        return [tick[8:16] for tick in await ticks(simulation.broker, "default")]


async def test_skip_leaves_out_what_was_missed() -> None:
    assert await list_missed(Missed.SKIP, "0 * * * *", 3.5 * 3_600) == ["01T04:00"]


async def test_skip_still_fires_a_tick_that_is_only_late() -> None:
    assert await list_missed(Missed.SKIP, "0 * * * *", 3_630) == ["01T01:00", "01T02:00"]


async def test_one_makes_up_for_the_last_tick_that_was_missed() -> None:
    assert await list_missed(Missed.ONE, "0 * * * *", 3.5 * 3_600) == ["01T03:00", "01T04:00"]


async def test_all_makes_up_for_every_tick_that_was_missed() -> None:
    assert await list_missed(Missed.ALL, "0 * * * *", 3.5 * 3_600) == [
        "01T01:00",
        "01T02:00",
        "01T03:00",
        "01T04:00",
    ]


async def test_all_makes_up_for_more_ticks_than_one_look_fires() -> None:
    async with Simulation.open() as simulation:
        schedule = Schedule("s", "* * * * *", Draft(), missed=Missed.ALL)
        await simulation.broker.admin.schedule(schedule)
        simulation.clock.advance(40 * 3_600)
        await simulation.run_until_idle()
        (ready,) = [t.count for t in await simulation.store.census() if t.place == "ready"]
        assert ready == 2_400


async def test_one_after_more_missed_ticks_than_one_look_counts() -> None:
    async with Simulation.open() as simulation:
        schedule = Schedule("s", "* * * * *", Draft(), missed=Missed.ONE)
        await simulation.broker.admin.schedule(schedule)
        simulation.clock.advance(40 * 3_600 + 30)
        await simulation.run_until_idle()
        assert await ticks(simulation.broker, "default") == ["2026-01-02T16:00:00+00:00"]


async def test_two_nodes_fire_each_tick_once() -> None:
    expected = [f"2026-01-01T00:{minute:02}:00+00:00" for minute in range(1, 31)]
    start = "2026-01-01T00:00:00+00:00"
    assert await list_fired(start, "30m", "* * * * *", "UTC", nodes=2) == expected


async def test_two_schedulers_at_the_same_moment_fire_each_tick_once(tmp_path: Path) -> None:
    clock = ManualClock()
    async with two_stores(tmp_path, clock) as stores:
        broker = Broker(stores[0])
        await broker.admin.schedule(Schedule("s", "* * * * *", Draft(), missed=Missed.ALL))
        agents = [Scheduler(store, QueueCache(store), "by") for store in stores]
        for _ in range(30):
            clock.advance(60)
            await asyncio.gather(*(agent.tick() for agent in agents))
        found = await ticks(broker, "default")
    assert len(found) == 30
    assert len(set(found)) == 30


async def test_a_scheduler_that_slept_between_look_and_fire_fires_nothing_again(
    simulation: Simulation,
) -> None:
    await simulation.broker.admin.schedule(Schedule("s", "* * * * *", Draft()))
    simulation.clock.advance(60)
    directory = QueueCache(simulation.store)
    sleeper = Scheduler(simulation.store, directory, "sleeper")
    (seen,) = await simulation.store.schedules(due_by=simulation.clock())
    late = await sleeper._plan_firing(seen, simulation.clock())
    assert late is not None
    await Scheduler(simulation.store, directory, "other").tick()
    assert await simulation.store.fire([late]) == [False]
    assert await ticks(simulation.broker, "default") == ["2026-01-01T00:01:00+00:00"]


async def test_a_schedule_saved_again_in_the_same_minute_does_not_tick_twice(
    simulation: Simulation,
) -> None:
    schedule = Schedule("s", "* * * * *", Draft())
    await simulation.broker.admin.schedule(schedule)
    await simulation.advance("1m")
    simulation.clock.advance(-30)
    await simulation.broker.admin.schedule(schedule)
    await simulation.advance("1m")
    assert await ticks(simulation.broker, "default") == ["2026-01-01T00:01:00+00:00"]
