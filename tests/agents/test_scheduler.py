"""What is due becomes ready; a closed queue, a full one and a broken schedule harm no other."""

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from penstock.agents.scheduler import Scheduler
from penstock.broker.queue_cache import QueueCache
from penstock.model.message import Draft, State
from penstock.model.queue import QueueState, Schedule
from penstock.testing.simulation import Simulation
from tests.agents.scenes import state, ticks

pytestmark = pytest.mark.anyio


def scheduler(simulation: Simulation) -> Scheduler:
    return Scheduler(simulation.store, QueueCache(simulation.store), "me")


async def test_a_message_is_ready_when_it_is_due_and_not_before(simulation: Simulation) -> None:
    published = await simulation.broker.publish(Draft(delay=90.0))
    await simulation.advance("89s")
    assert await state(simulation.broker, published.id) is State.SCHEDULED
    await simulation.advance("1s")
    assert await state(simulation.broker, published.id) is State.READY


async def test_the_scheduler_waits_until_the_next_due_moment_at_most_a_second(
    simulation: Simulation,
) -> None:
    agent = scheduler(simulation)
    assert await agent.tick() == 1.0
    await simulation.broker.publish(Draft(delay=60.0))
    assert await agent.tick() == 1.0
    await simulation.broker.publish(Draft(delay=0.25))
    assert await agent.tick() == pytest.approx(0.25)
    simulation.clock.advance(0.25)
    assert await agent.tick() == 1.0


async def test_the_scheduler_waits_until_the_next_tick_of_a_schedule(
    simulation: Simulation,
) -> None:
    await simulation.broker.admin.schedule(Schedule("often", "* * * * *", Draft()))
    simulation.clock.advance(59.5)
    assert await scheduler(simulation).tick() == pytest.approx(0.5)


async def test_a_full_batch_goes_on_at_once(simulation: Simulation) -> None:
    drafts = [Draft(delay=1.0) for _ in range(1_500)]
    await simulation.broker.publish_many(drafts)
    simulation.clock.advance(1)
    agent = scheduler(simulation)
    assert [await agent.tick(), await agent.tick()] == [0, 1.0]


async def test_a_schedule_keeps_ticking_beside_a_long_line_of_due_messages(
    simulation: Simulation,
) -> None:
    await simulation.broker.admin.create_queue("cron")
    await simulation.broker.admin.schedule(Schedule("often", "* * * * *", Draft(queue="cron")))
    await simulation.broker.publish_many([Draft(delay=60.0) for _ in range(1_000)])
    simulation.clock.advance(60)
    assert await scheduler(simulation).tick() == 0
    assert await ticks(simulation.broker, "cron") == ["2026-01-01T00:01:00+00:00"]


async def test_a_paused_queue_takes_ticks(simulation: Simulation) -> None:
    admin = simulation.broker.admin
    await admin.create_queue("cron", preset_name="scaiqueue")
    await admin.schedule(Schedule("often", "* * * * *", Draft(queue="cron")))
    await admin.set_state("cron", QueueState.PAUSED)
    await admin.pause_scope("default")
    await simulation.advance("2m")
    assert len(await ticks(simulation.broker, "cron")) == 2


@pytest.mark.parametrize("closed", [QueueState.DRAINING, QueueState.ARCHIVED])
async def test_a_closing_queue_skips_its_ticks_and_says_so(
    simulation: Simulation, closed: QueueState
) -> None:
    admin = simulation.broker.admin
    await admin.create_queue("cron")
    await admin.schedule(Schedule("often", "* * * * *", Draft(queue="cron")))
    await admin.set_state("cron", closed)
    with capture_logs() as logs:
        await simulation.advance("2m")
    assert await ticks(simulation.broker, "cron") == []
    assert logs == 2 * [
        {
            "event": "ticks_skipped",
            "schedule": "often",
            "queue": "cron",
            "state": closed.value,
            "count": 1,
            "log_level": "warning",
        }
    ]
    await admin.set_state("cron", QueueState.ACTIVE)
    await simulation.advance("1m")
    assert await ticks(simulation.broker, "cron") == ["2026-01-01T00:03:00+00:00"]


async def test_a_tick_into_a_full_queue_is_a_dead_letter(simulation: Simulation) -> None:
    await simulation.broker.admin.create_queue("cron", max_depth=1)
    await simulation.broker.admin.schedule(Schedule("often", "* * * * *", Draft(queue="cron")))
    await simulation.advance("2m")
    found = await simulation.broker.admin.find("cron")
    assert [(each.state, each.reason) for each in found] == [
        (State.DEAD, "overflow"),
        (State.READY, None),
    ]


async def test_a_paused_schedule_does_not_tick(simulation: Simulation) -> None:
    await simulation.broker.admin.schedule(Schedule("often", "* * * * *", Draft(), paused=True))
    await simulation.advance("5m")
    assert await ticks(simulation.broker, "default") == []


async def test_a_named_draft_ticks_more_than_once(simulation: Simulation) -> None:
    draft = Draft(name="report", body=b"1")
    await simulation.broker.admin.schedule(Schedule("often", "* * * * *", draft))
    await simulation.advance("2m")
    record = await simulation.broker.admin.get("default/report@2026-01-01T00:02:00+00:00")
    assert record.message.body == b"1"
    assert len(await ticks(simulation.broker, "default")) == 2


async def test_a_schedule_that_cannot_be_read_stops_no_other(simulation: Simulation) -> None:
    good = await simulation.broker.admin.schedule(Schedule("good", "* * * * *", Draft()))
    bad = replace(good, name="bad", timezone="Mars/Olympus")
    await simulation.store.save_schedule(bad)
    with capture_logs() as logs:
        await simulation.advance("2m")
    assert len(await ticks(simulation.broker, "default")) == 2
    assert {(entry["event"], entry["schedule"]) for entry in logs} == {("schedule_invalid", "bad")}
    assert await scheduler(simulation).tick() == 1.0


async def test_many_schedules_due_at_once_all_fire(simulation: Simulation) -> None:
    for number in range(250):
        await simulation.broker.admin.schedule(Schedule(f"s{number}", "5 * * * *", Draft()))
    await simulation.advance("5m")
    assert await ticks(simulation.broker, "default") == ["2026-01-01T00:05:00+00:00"] * 250


async def test_keyed_messages_move_on_one_at_a_time(simulation: Simulation) -> None:
    seen: list[bytes] = []
    drafts = [Draft(body=b"%d" % n, ordering_key="k", delay=float(n)) for n in range(3)]
    await simulation.broker.publish_many(drafts)
    simulation.handle("default", lambda message: seen.append(message.body))
    await simulation.advance("5s")
    assert seen == [b"0", b"1", b"2"]


async def test_the_last_work_of_the_scheduler_is_known(simulation: Simulation) -> None:
    await simulation.broker.publish(Draft(delay=1.0))
    agent = scheduler(simulation)
    await agent.tick()
    assert "scheduler" not in {run.name for run in await simulation.store.agent_runs()}
    simulation.clock.advance(2)
    await agent.tick()
    (run,) = [run for run in await simulation.store.agent_runs() if run.name == "scheduler"]
    assert run.result == '{"promoted":1,"fired":0,"resumed":0}'
