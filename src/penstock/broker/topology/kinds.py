"""Scopes, queues and schedules of a topology."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.broker.documents import decode_document
from penstock.broker.governance import check_schemas
from penstock.broker.queues import check_own_name
from penstock.broker.scopes import (
    MAX_DESCRIPTION_LENGTH,
    MAX_DISPLAY_NAME_LENGTH,
    check_line,
    make_scope_name,
)
from penstock.broker.topology.items import (
    StoredTopology,
    Table,
    TargetTopology,
    TopologyBuilder,
    TopologyItem,
    drop_empty,
    encode,
    make_settings,
    read_name,
    refuse_unknown,
)
from penstock.errors import InvalidInput
from penstock.model.fields import JSON, MAX_WORD_LENGTH
from penstock.model.message import Draft
from penstock.model.queue import SCOPE, Missed, Schedule, ScopeProfile
from penstock.model.settings import SCAIQUEUE_WORDS, QueueSettings, change, get_preset
from penstock.model.topology import NewTopologyQueue, TopologySchedule
from penstock.rules import drafts, validation
from penstock.wire.publish import PublishRequest, make_draft, make_publish_request

# Refuses a message that the caller may not publish to a queue of the scope.
CheckDraft = Callable[[str, Draft], None]
# Refuses settings of a queue that depend on what the store has.
CheckSettings = Callable[[QueueSettings], Awaitable[None]]


class ScopeKind:
    name = "scope"
    documents: tuple[str, ...] = (SCOPE,)
    operated: tuple[str, ...] = ("archived",)

    def read(self, table: Table, scope: str) -> TopologyItem:
        refuse_unknown(table, ("name", "display_name", "description"))
        name = read_name(table, "scope")
        check_line("display_name", table.get("display_name", ""), MAX_DISPLAY_NAME_LENGTH)
        check_line("description", table.get("description", ""), MAX_DESCRIPTION_LENGTH)
        return TopologyItem(self.name, name, name, drop_empty(table))

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for name in sorted({scope for scope, _ in stored.queues}):
            document = stored.get_document(SCOPE, make_scope_name(stored.tenant, name))
            profile = ScopeProfile()
            if document is not None:
                profile = decode_document(document, ScopeProfile)
            fields = {"name": name, **msgspec.to_builtins(profile)}
            yield TopologyItem(self.name, name, name, drop_empty(fields))

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        return item

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        stored = builder.stored
        if item.key not in {scope for scope, _ in stored.queues}:
            builder.new_scopes.append(item.key)
        profile = {key: value for key, value in item.fields.items() if key != "name"}
        name = make_scope_name(stored.tenant, item.key)
        if profile or stored.get_document(SCOPE, name) is not None:
            builder.save(SCOPE, name, msgspec.convert(profile, ScopeProfile))

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        """Archives it: the history of its messages stays."""
        fields = {key: value for key, value in item.fields.items() if key != "name"}
        profile = replace(msgspec.convert(fields, ScopeProfile), archived=True)
        builder.save(SCOPE, make_scope_name(builder.stored.tenant, item.key), profile)


class QueueKind:
    name = "queue"
    documents: tuple[str, ...] = ()
    operated: tuple[str, ...] = ()

    def __init__(self, check_settings: CheckSettings) -> None:
        self.check_settings = check_settings

    def read(self, table: Table, scope: str) -> TopologyItem:
        known = ("name", "preset", *QueueSettings.__struct_fields__, *SCAIQUEUE_WORDS)
        refuse_unknown(table, known)
        name = read_name(table, "queue")
        check_own_name(name)
        given = {key: value for key, value in table.items() if key not in ("name", "preset")}
        settings = change(get_preset(str(table.get("preset", "default"))), given)
        return make_queue_item(scope, name, settings)

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for (scope, name), queue in stored.queues.items():
            if not queue.system and "/" not in name:
                yield make_queue_item(scope, name, queue.settings)

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        target.check_scope(item.scope)
        await self.check_settings(make_settings(item))
        return item

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        queue = builder.stored.queues.get((item.scope, item.key))
        settings = make_settings(item)
        if queue is None:
            builder.new_queues.append(NewTopologyQueue(item.scope, item.key, settings))
        else:
            builder.changed_queues.append((queue, settings))

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        builder.deleted_queues.append(builder.stored.queues[item.scope, item.key])


def make_queue_item(scope: str, name: str, settings: QueueSettings) -> TopologyItem:
    defaults = msgspec.to_builtins(QueueSettings())
    fields = {"name": name, **find_differing(msgspec.to_builtins(settings), defaults)}
    return TopologyItem("queue", scope, name, fields)


def find_differing(given: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that differ from their defaults, also inside of nested settings."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        default = defaults.get(key)
        if isinstance(value, dict) and isinstance(default, dict):
            if nested := find_differing(value, default):
                found[key] = nested
        elif value != default and value is not None:
            found[key] = list(value) if isinstance(value, tuple) else value
    return found


class ScheduleKind:
    name = "schedule"
    documents: tuple[str, ...] = ()
    operated: tuple[str, ...] = ("paused",)
    own = ("name", "queue", "cron", "timezone", "missed", "paused", "body_json")

    def __init__(self, check_draft: CheckDraft) -> None:
        self.check_draft = check_draft

    def read(self, table: Table, scope: str) -> TopologyItem:
        refuse_unknown(table, (*self.own, *PublishRequest.__struct_fields__))
        if missing := {"name", "cron"} - table.keys():
            raise InvalidInput(f"{', '.join(sorted(missing))} is missing")
        validation.check_text("name", table["name"], MAX_WORD_LENGTH)
        schedule = parse_schedule(table)
        item = make_schedule_item(scope, schedule)
        if "paused" in table:
            return replace(item, fields={**item.fields, "paused": schedule.paused})
        return item

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        queues = {queue.id: queue for queue in stored.queues.values()}
        for schedule in stored.schedules.values():
            if (queue := queues.get(schedule.queue_id)) is not None:
                draft = replace(schedule.draft, queue=queue.name)
                item = make_schedule_item(queue.scope.name, replace(schedule, draft=draft))
                yield replace(item, fields={**item.fields, "paused": schedule.paused})

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        # Imported late, because it is slow to load.
        from penstock.rules.cron import find_next_tick

        schedule = parse_schedule(item.fields)
        find_next_tick(schedule.cron, schedule.timezone, target.stored.now)
        self.check_draft(item.scope, schedule.draft)
        drafts.check(schedule.draft, target.find_queue(item.scope, schedule.draft.queue))
        queue = target.stored.queues.get((item.scope, schedule.draft.queue))
        if queue is not None:
            check_schemas(schedule.draft, queue, target.stored.policy)
        return item

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        from penstock.rules.cron import find_next_tick

        schedule, before = parse_schedule(item.fields), builder.stored.get_schedule(item)
        next_at = find_next_tick(schedule.cron, schedule.timezone, builder.stored.now)
        if before is not None and not before.paused:
            same = (before.cron, before.timezone) == (schedule.cron, schedule.timezone)
            next_at = before.next_at if same else next_at
        placed = replace(schedule, next_at=next_at)
        builder.schedules.append(TopologySchedule(item.scope, schedule.draft.queue, placed))

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        if (schedule := builder.stored.get_schedule(item)) is not None:
            builder.deleted_schedules.append(schedule)


def parse_schedule(table: Table) -> Schedule:
    message = {key: value for key, value in table.items() if key not in ScheduleKind.own}
    message["queue"] = table.get("queue", "default")
    if "body_json" in table:
        message["body"] = msgspec.Raw(str(table["body_json"]).encode())
    try:
        sent = msgspec.json.decode(encode(message), type=PublishRequest)
        missed = Missed(table.get("missed", Missed.ONE))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise InvalidInput(str(error)) from None
    return Schedule(
        name=str(table["name"]),
        cron=str(table["cron"]),
        draft=make_draft(sent),
        timezone=str(table.get("timezone", "UTC")),
        missed=missed,
        paused=bool(table.get("paused", False)),
    )


# Fields of a message with their defaults, which a file leaves out.
PLAIN_MESSAGE = (("content_type", JSON), ("delay", 0.0), ("type", "message"), ("priority", 0))


def make_schedule_item(scope: str, schedule: Schedule) -> TopologyItem:
    message = msgspec.json.decode(encode(make_publish_request(schedule.draft)))
    queue = message.pop("queue", "default")
    message = {key: value for key, value in message.items() if (key, value) not in PLAIN_MESSAGE}
    fields = {"name": schedule.name, "queue": queue, "cron": schedule.cron, **message}
    if schedule.timezone != "UTC":
        fields["timezone"] = schedule.timezone
    if schedule.missed is not Missed.ONE:
        fields["missed"] = schedule.missed.value
    return TopologyItem("schedule", scope, f"{queue}/{schedule.name}", fields)
