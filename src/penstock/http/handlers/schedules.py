"""Operations on schedules."""

from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.http.context import RequestContext, cut_page
from penstock.http.handlers.publish import publish_draft, refuse_unfit
from penstock.http.operations import OperationTable
from penstock.model.queue import Queue, Schedule
from penstock.rules.access import Right
from penstock.rules.masking import check_draft_unmasked, list_hidden
from penstock.wire.fields import Cursor, Name, PageLimit, Word
from penstock.wire.publish import PublishResult, make_draft
from penstock.wire.queues import (
    NewSchedule,
    Schedules,
    ScheduleView,
    make_schedule_view,
)

schedules = OperationTable("schedules")


@schedules.add("GET", "/v1/schedules", "List schedules", Schedules)
async def list_schedules(
    call: RequestContext, limit: PageLimit = 1_000, cursor: Cursor | None = None
) -> Schedules:
    own = {queue.id: queue for queue in await call.admin.queues(scope=call.scope)}
    found = {
        f"{own[each.queue_id].name}/{each.name}": each
        for each in await call.admin.schedules(scope=call.scope)
    }
    page, next_cursor = cut_page(call, found, str, limit, cursor, "schedules")
    views = [show_schedule(call, found[key], own[found[key].queue_id]) for key in page]
    return Schedules(views, next_cursor)


def show_schedule(call: RequestContext, schedule: Schedule, queue: Queue) -> ScheduleView:
    return make_schedule_view(schedule, queue.name, list_hidden(queue, call.reveals))


@schedules.add(
    "PUT", "/v1/queues/{queue}/schedules/{name}", "Create or update a schedule", ScheduleView,
    takes=NewSchedule,
    example={"cron": "0 9 * * MON-FRI", "timezone": "Europe/Rome", "message": {"type": "report"}},
)  # fmt: skip
async def save_schedule(
    call: RequestContext, queue: Name, name: Word, new: NewSchedule
) -> ScheduleView:
    if new.message.queue not in ("default", queue):
        raise InvalidInput(
            f"message.queue {new.message.queue!r} does not match queue {queue!r} of the path"
        )
    draft = replace(make_draft(new.message), queue=queue)
    refuse_unfit(call, draft)
    owner = await call.admin.queue(queue, scope=call.scope)
    check_draft_unmasked(draft, owner, call.reveals)
    schedule = Schedule(
        name=name,
        cron=new.cron,
        draft=draft,
        timezone=new.timezone,
        missed=new.missed,
        paused=new.paused,
        declared_in=new.declared_in,
    )
    return show_schedule(call, await call.admin.schedule(schedule, scope=call.scope), owner)


@schedules.add("POST", "/v1/queues/{queue}/schedules/{name}/pause", "Pause a schedule",
               ScheduleView)  # fmt: skip
async def pause_schedule(call: RequestContext, queue: Name, name: Word) -> ScheduleView:
    """It publishes no messages until it is resumed. Its message stays as it is."""
    paused = await call.admin.pause_schedule(queue, name, scope=call.scope)
    return show_schedule(call, paused, await call.admin.queue(queue, scope=call.scope))


@schedules.add("POST", "/v1/queues/{queue}/schedules/{name}/resume", "Resume a schedule",
               ScheduleView)  # fmt: skip
async def resume_schedule(call: RequestContext, queue: Name, name: Word) -> ScheduleView:
    """Ticks that passed while it was paused are not made up for. It needs the right to publish."""
    found = await call.admin.get_schedule(queue, name, scope=call.scope)
    refuse_unfit(call, found.draft)
    resumed = await call.admin.resume_schedule(queue, name, scope=call.scope)
    return show_schedule(call, resumed, await call.admin.queue(queue, scope=call.scope))


@schedules.add("POST", "/v1/queues/{queue}/schedules/{name}/run", "Run a schedule now",
               PublishResult, right=Right.PUBLISH)  # fmt: skip
async def run_schedule(call: RequestContext, queue: Name, name: Word) -> PublishResult:
    """Publishes its message once, as it is stored. The next tick does not change."""
    found = await call.admin.get_schedule(queue, name, scope=call.scope)
    return await publish_draft(call, replace(found.draft, publisher=call.publisher))


@schedules.add(
    "DELETE", "/v1/queues/{queue}/schedules/{name}", "Delete a schedule", None, status=204
)
async def delete_schedule(call: RequestContext, queue: Name, name: Word) -> None:
    await call.admin.unschedule(queue, name, scope=call.scope)
