"""Routes for cron schedules."""

from typing import Annotated

from fastapi import Path
from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.http.handlers.publish import refuse_unfit
from penstock.http.routing import Called, QueueName, RouteTable, make_body_dependency
from penstock.model.fields import MAX_WORD_LENGTH
from penstock.model.queue import Schedule
from penstock.wire.publish import make_draft
from penstock.wire.queues import NewSchedule, Schedules, ScheduleView, make_schedule_view

schedules = RouteTable("schedules")
ScheduleName = Annotated[str, Path(min_length=1, max_length=MAX_WORD_LENGTH)]


@schedules.add("GET", "/v1/schedules", "List schedules", Schedules)
async def list_schedules(call: Called) -> Schedules:
    found = await call.admin.schedules(scope=call.scope)
    names = {queue.id: queue.name for queue in await call.admin.queues(scope=call.scope)}
    return Schedules([make_schedule_view(each, names[each.queue_id]) for each in found])


@schedules.add(
    "PUT", "/v1/queues/{queue}/schedules/{name}", "Create or update a schedule", ScheduleView,
    takes=NewSchedule,
    example={"cron": "0 9 * * MON-FRI", "timezone": "Europe/Rome", "message": {"type": "report"}},
)  # fmt: skip
async def save_schedule(
    call: Called,
    queue: QueueName,
    name: ScheduleName,
    new: Annotated[NewSchedule, make_body_dependency(NewSchedule)],
) -> ScheduleView:
    if new.message.queue not in ("default", queue):
        raise InvalidInput(
            f"message.queue {new.message.queue!r} does not match queue {queue!r} of the path"
        )
    draft = replace(make_draft(new.message), queue=queue)
    refuse_unfit(call, draft)
    schedule = Schedule(
        name,
        new.cron,
        draft,
        new.timezone,
        new.missed,
        new.paused,
        declared_in=new.declared_in,
    )
    return make_schedule_view(await call.admin.schedule(schedule, scope=call.scope), queue)


@schedules.add(
    "DELETE", "/v1/queues/{queue}/schedules/{name}", "Delete a schedule", None, status=204
)
async def delete_schedule(call: Called, queue: QueueName, name: ScheduleName) -> None:
    await call.admin.unschedule(queue, name, scope=call.scope)
