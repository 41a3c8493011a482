"""Schedules: one message per tick, whoever fires it, and the ticks nobody was there for."""

import anyio
import pytest
from msgspec.structs import replace

from penstock.agents.scheduler import make_tick_entry
from penstock.errors import Forbidden, InvalidInput, NotFound
from penstock.model.message import Draft
from penstock.model.queue import Missed, QueueState, Schedule
from penstock.model.store_types import Firing
from penstock.rules import cron
from tests.conformance.stage import HOUR, Stage

pytestmark = pytest.mark.anyio

MINUTE = 60_000_000


def minutely(
    name: str = "report", *, missed: Missed = Missed.ONE, paused: bool = False
) -> Schedule:
    draft = Draft(body=b"go", type="report.build")
    return Schedule(name, "* * * * *", draft, missed=missed, paused=paused)


async def test_a_schedule_knows_its_next_tick(stage: Stage) -> None:
    before = await stage.store.now()
    saved = await stage.admin.schedule(minutely())
    assert saved.id > 0
    assert saved.next_at % MINUTE == 0
    assert before < saved.next_at <= await stage.store.now() + MINUTE
    assert (saved.queue_id, saved.last_at) == (await stage.queue_id(), None)
    assert await stage.admin.schedules() == [saved]


async def test_nothing_is_fired_before_its_tick(stage: Stage) -> None:
    saved = await stage.admin.schedule(minutely())
    assert await stage.store.schedules(due_by=saved.next_at - 1) == []
    assert await stage.store.schedules(due_by=saved.next_at) == [saved]


async def test_a_tick_publishes_the_draft(stage: Stage) -> None:
    saved = await stage.admin.schedule(minutely())
    await stage.travel(60)
    assert await stage.tick() == 1
    leased = await stage.take()
    assert (leased.body, leased.type) == (b"go", "report.build")
    (fired,) = await stage.admin.schedules()
    assert (fired.last_at, fired.next_at) == (saved.next_at, saved.next_at + MINUTE)
    assert await stage.tick() == 0


async def test_a_new_message_for_the_same_ticks_loses_none(stage: Stage) -> None:
    saved = await stage.admin.schedule(minutely(missed=Missed.ALL))
    await stage.travel(180)
    new = replace(minutely(missed=Missed.ALL), draft=Draft(body=b"new", type="report.build"))
    assert (await stage.admin.schedule(new)).next_at == saved.next_at
    assert await stage.tick() == 1
    assert await stage.places() == {"ready": 3}


async def test_a_schedule_that_was_paused_resumes_with_the_next_tick(stage: Stage) -> None:
    await stage.admin.schedule(minutely(missed=Missed.ALL, paused=True))
    await stage.travel(180)
    resumed = await stage.admin.schedule(minutely(missed=Missed.ALL))
    assert resumed.next_at > await stage.store.now()


async def test_a_tick_fires_once_for_all_who_saw_it(stage: Stage) -> None:
    await stage.admin.schedule(minutely())
    await stage.travel(60)
    fired: list[bool] = []

    async def fire(at: Stage) -> None:
        fired.extend(await at.store.fire(firings))

    firings = await stage.firings()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(fire, await stage.another())
    assert sorted(fired) == [False] * 4 + [True]
    assert await stage.places() == {"ready": 1}


async def test_each_schedule_of_a_batch_answers_for_itself(stage: Stage) -> None:
    await stage.admin.schedule(minutely("one"))
    await stage.admin.schedule(minutely("two"))
    await stage.travel(60)
    one, two = await stage.firings()
    assert await stage.store.fire([one]) == [True]
    assert await stage.store.fire([one, two, two]) == [False, True, False]
    assert await stage.places() == {"ready": 2}


async def tick_firings(stage: Stage) -> list[Firing]:
    """With the entries of the scheduler, which publish each tick once."""
    now = await stage.store.now()
    firings = []
    for schedule in await stage.store.schedules(now):
        queue = await stage.broker.directory.get_by_id(schedule.queue_id)
        ticks, next_at = cron.find_due_ticks(schedule, now)
        entries = tuple(make_tick_entry(schedule, queue, tick, schedule.draft) for tick in ticks)
        firings.append(Firing(schedule.id, schedule.next_at, next_at, entries))
    return firings


async def test_each_tick_of_a_batch_is_published_by_its_kind(stage: Stage) -> None:
    drafts = (Draft(), Draft(ordering_key="k"), Draft(ordering_key="k"), Draft(name="n"))
    for number, draft in enumerate((*drafts, Draft(delay=60), Draft(body=b"last"))):
        await stage.admin.schedule(Schedule(f"{number}", "* * * * *", draft))
    await stage.travel(60)
    assert await stage.store.fire(await tick_firings(stage)) == [True] * 6
    assert await stage.places() == {"ready": 4, "scheduled": 2}


async def test_a_tick_is_published_once_though_its_schedule_is_set_back(stage: Stage) -> None:
    saved = [await stage.admin.schedule(minutely(name)) for name in ("one", "two")]
    await stage.travel(60)
    firings = await tick_firings(stage)
    assert await stage.store.fire(firings) == [True, True]
    for schedule in saved:
        await stage.store.save_schedule(schedule)
    assert await stage.store.fire(firings) == [True, True]
    assert await stage.places() == {"ready": 2}


@pytest.mark.parametrize(("missed", "count"), [(Missed.SKIP, 1), (Missed.ONE, 1), (Missed.ALL, 60)])
async def test_missed_ticks_are_made_up_for_as_asked(
    stage: Stage, missed: Missed, count: int
) -> None:
    await stage.admin.schedule(minutely(missed=missed))
    await stage.travel(HOUR)
    assert await stage.tick() == 1
    assert await stage.places() == {"ready": count}
    (saved,) = await stage.admin.schedules()
    assert saved.next_at > await stage.store.now()


async def test_skipped_ticks_publish_nothing_and_move_on(stage: Stage) -> None:
    schedule = Schedule("nightly", "0 3 * * *", Draft(), missed=Missed.SKIP)
    saved = await stage.admin.schedule(schedule)
    await stage.travel((saved.next_at - await stage.store.now()) / 1_000_000 + HOUR)
    assert await stage.tick() == 1
    assert await stage.places() == {}
    assert await stage.firings() == []


async def test_a_paused_schedule_does_not_tick(stage: Stage) -> None:
    await stage.admin.schedule(minutely())
    await stage.travel(60)
    seen = await stage.firings()
    await stage.admin.schedule(minutely(paused=True))
    await stage.travel(60)
    assert await stage.firings() == []
    assert await stage.store.fire(seen) == [False]
    assert await stage.places() == {}


async def test_a_schedule_paused_between_look_and_fire_does_not_fire(stage: Stage) -> None:
    schedule = await stage.admin.schedule(minutely())
    await stage.travel(60)
    seen = await stage.firings()
    paused = await stage.store.save_schedule(replace(schedule, paused=True))
    assert (paused.id, paused.next_at) == (schedule.id, schedule.next_at)
    assert await stage.store.fire(seen) == [False]
    assert await stage.places() == {}


async def test_a_schedule_is_changed_by_its_name(stage: Stage) -> None:
    await stage.queue("work")
    first = await stage.admin.schedule(minutely())
    second = await stage.admin.schedule(Schedule("report", "0 * * * *", Draft(body=b"new")))
    elsewhere = await stage.admin.schedule(Schedule("report", "0 * * * *", Draft(queue="work")))
    assert (second.id, second.cron, second.draft.body) == (first.id, "0 * * * *", b"new")
    assert await stage.admin.schedules() == [second, elsewhere]


async def test_a_removed_schedule_does_not_fire(stage: Stage) -> None:
    await stage.admin.schedule(minutely())
    await stage.travel(60)
    seen = await stage.firings()
    await stage.admin.unschedule("default", "report")
    assert await stage.store.fire(seen) == [False]
    assert await stage.places() == {}
    with pytest.raises(NotFound, match="'report'"):
        await stage.admin.unschedule("default", "report")


async def test_a_paused_queue_still_gets_its_ticks(stage: Stage) -> None:
    await stage.queue("work", "scaiqueue")
    await stage.admin.schedule(Schedule("report", "* * * * *", Draft(queue="work")))
    await stage.admin.set_state("work", QueueState.PAUSED)
    await stage.travel(60)
    assert await stage.tick() == 1
    assert await stage.places("work") == {"ready": 1}


async def test_a_schedule_follows_its_time_zone(stage: Stage) -> None:
    plans = [("UTC", "0 12 * * *"), ("Asia/Tokyo", "0 21 * * *"), ("Asia/Kolkata", "30 17 * * *")]
    moments = {
        (await stage.admin.schedule(Schedule(zone, cron, Draft(), timezone=zone))).next_at
        for zone, cron in plans
    }
    assert len(moments) == 1


@pytest.mark.parametrize(
    ("schedule", "error"),
    [
        (Schedule("n", "every day", Draft()), InvalidInput),
        (Schedule("n", "0 0 30 2 *", Draft()), InvalidInput),
        (Schedule("n", "* * * * *", Draft(), timezone="Mars/Base"), InvalidInput),
        (Schedule("n" * 201, "* * * * *", Draft()), InvalidInput),
        (Schedule("n", "* * * * *", Draft(queue="nowhere")), NotFound),
        (Schedule("n", "* * * * *", Draft(queue="_dead_letter")), Forbidden),
        (Schedule("n", "* * * * *", Draft(priority=10**9)), InvalidInput),
    ],
)
async def test_a_schedule_that_cannot_work_is_refused(
    stage: Stage, schedule: Schedule, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await stage.admin.schedule(schedule)
    assert await stage.store.schedules() == []


async def test_a_schedule_is_paused_run_and_resumed_with_its_message_as_it_is(
    stage: Stage,
) -> None:
    body = b'{"id": 12345678901234567890, "rate": 1.10}'
    saved = await stage.admin.schedule(Schedule("report", "0 3 * * *", Draft(body=body)))
    paused = await stage.admin.pause_schedule("default", "report")
    assert (paused.paused, paused.draft.body) == (True, body)
    published = await stage.broker.run_schedule("default", "report")
    assert (await stage.record(published.id)).message.body == body
    resumed = await stage.admin.resume_schedule("default", "report")
    assert (resumed.paused, resumed.next_at >= saved.next_at) == (False, True)
    assert await stage.admin.get_schedule("default", "report") == resumed
    with pytest.raises(NotFound, match="no schedule named 'nothing'"):
        await stage.admin.pause_schedule("default", "nothing")
