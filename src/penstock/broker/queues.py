"""Manages scopes, queues and schedules."""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.broker.audit import note_changes
from penstock.broker.queue_cache import QueueCache
from penstock.errors import Forbidden, InvalidInput, InvalidState, NotFound, SlugConflict
from penstock.model.fields import MAX_BATCH, MAX_WORD_LENGTH
from penstock.model.message import Moment, State
from penstock.model.queue import EVERY, Queue, QueueState, Schedule, Scope
from penstock.model.settings import QueueSettings, change, get_preset
from penstock.model.store_types import Query
from penstock.retry_policies import DELETE_QUEUE
from penstock.rules import drafts, validation
from penstock.rules.masking import Reveals, check_new_mask
from penstock.store import Store

PURGEABLE = ("ready", "scheduled", "dead")


async def check_anomalies(store: Store, settings: QueueSettings) -> None:
    """Refuses kinds of anomalies that are neither built in nor those of a detector."""
    if own := settings.anomalies.own_kinds:
        # Imported late, because most queues name no such kind.
        from penstock.broker.anomalies import refuse_unknown

        await refuse_unknown(store, own)


class QueueAdmin:
    """Administers queues. `allows` decides by scope and queue; queue EVERY means all.

    `reveals` decides where the caller sees masked fields. Without it, that is everywhere.
    """

    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        tenant: str,
        allows: Callable[[str, str], bool] | None = None,
        reveals: Reveals = lambda scope, queue: True,
    ) -> None:
        self.store = store
        self.directory = directory
        self.tenant = tenant
        self.allows = allows
        self.reveals = reveals

    async def create_scope(self, name: str) -> Scope:
        validation.check_name("scope", name)
        check_allowed(self, name)
        scope = await self.store.create_scope(self.tenant, name)
        self.directory.forget()
        return scope

    async def pause_scope(self, name: str, *, paused: bool = True) -> None:
        check_allowed(self, name)
        scope = await self.store.scope(self.tenant, name)
        if scope is None:
            raise NotFound(f"no scope named {name!r}")
        note_changes({"paused": scope.paused}, {"paused": paused})
        await self.store.pause_scope(scope.id, paused)
        self.directory.forget()

    async def create_queue(
        self, name: str, *, preset_name: str = "default", scope: str = "default", **settings: Any
    ) -> Queue:
        check_own_name(name)
        check_allowed(self, scope, name)
        found = await self.store.scope(self.tenant, scope)
        if found is None:
            raise NotFound(f"no scope named {scope!r}")
        made = change(get_preset(preset_name), settings)
        await check_anomalies(self.store, made)
        note_changes({}, {"name": name, "preset": preset_name, **settings})
        queue = await self.store.create_queue(found.id, name, made)
        self.directory.forget()
        return queue

    async def ensure_queue(
        self, name: str, *, preset_name: str = "default", scope: str = "default", **settings: Any
    ) -> Queue:
        """Creates the queue, or gives an existing one exactly these settings."""
        wanted = change(get_preset(preset_name), settings)
        await check_anomalies(self.store, wanted)
        try:
            return await self.create_queue(name, preset_name=preset_name, scope=scope, **settings)
        except SlugConflict:
            queue = await self.queue(name, scope=scope)
        if queue.settings != wanted:
            await self.store.change_queue(queue.id, settings=wanted)
        return await self._reload(name, scope)

    async def queue(self, name: str, *, scope: str = "default") -> Queue:
        check_allowed(self, scope, name)
        return await self.directory.get_by_name(self.tenant, scope, name)

    async def queues(self, *, scope: str | None = None) -> list[Queue]:
        """Lists the queues that the caller has access to."""
        found = await self.store.queues(self.tenant, scope)
        return [
            queue
            for queue in found
            if queue.state is not QueueState.DELETED
            and is_allowed(self, queue.scope.name, queue.name)
        ]

    async def set_queue(self, name: str, *, scope: str = "default", **settings: Any) -> Queue:
        queue = await self.queue(name, scope=scope)
        changed = change(queue.settings, settings)
        await check_anomalies(self.store, changed)
        check_new_mask(queue, changed.mask, self.reveals)
        note_changes(queue.settings, changed)
        await self.store.change_queue(queue.id, settings=changed)
        return await self._reload(name, scope)

    async def set_state(self, name: str, state: QueueState, *, scope: str = "default") -> Queue:
        """Pauses, resumes, drains or archives a queue."""
        queue = await self.queue(name, scope=scope)
        if state is QueueState.DELETED:
            raise InvalidInput("a queue cannot be set to 'deleted'; call delete_queue")
        note_changes({"state": queue.state}, {"state": state})
        await self.store.change_queue(queue.id, state=state)
        return await self._reload(name, scope)

    async def rename_queue(self, name: str, new_name: str, *, scope: str = "default") -> Queue:
        queue = await self.queue(name, scope=scope)
        check_own_name(queue.name)
        check_own_name(new_name)
        if self.directory.has_schemas(queue):
            raise InvalidState(f"schemas are bound to queue {name!r}; unbind them first")
        check_allowed(self, scope, new_name)
        note_changes({"name": name}, {"name": new_name})
        await self.store.change_queue(queue.id, name=new_name)
        return await self._reload(new_name, scope)

    async def delete_queue(self, name: str, *, force: bool = False, scope: str = "default") -> None:
        """Deletes a queue without unfinished messages. `force` cancels those first."""
        queue = await self.queue(name, scope=scope)
        check_own_name(queue.name)
        note_changes({"state": queue.state}, {"state": QueueState.DELETED})
        if force:
            await self.store.change_queue(queue.id, state=QueueState.ARCHIVED)
            await self._purge_all(queue)
        if not await self.store.delete_queue(queue.id):
            raise InvalidState(f"queue {name!r} has unfinished messages")
        self.directory.forget()

    async def _purge_all(self, queue: Queue) -> None:
        """Cancels unfinished messages, within bounds: others may still publish."""
        retries = DELETE_QUEUE.begin()
        while await self._purge_some(queue) and await retries.again():
            pass

    async def _purge_some(self, queue: Queue) -> bool:
        """Returns False if none is left."""
        if await self.store.purge(queue.id, PURGEABLE, MAX_BATCH):
            return True
        held = await self.store.find(Query((queue.id,), State.CLAIMED))
        if held:
            await self.store.cancel([record.message.id for record in held], force=True)
        return bool(held)

    async def _reload(self, name: str, scope: str) -> Queue:
        self.directory.forget()
        return await self.queue(name, scope=scope)

    async def schedule(self, schedule: Schedule, *, scope: str = "default") -> Schedule:
        """Creates or updates a schedule on the draft's queue."""
        validation.check_text("schedule name", schedule.name, MAX_WORD_LENGTH)
        queue = await self.queue(schedule.draft.queue, scope=scope)
        if queue.system:
            raise Forbidden(
                f"queue {queue.name!r} is a system queue; messages cannot be published to it"
            )
        drafts.check(schedule.draft, queue.settings)
        self.directory.check_schemas(schedule.draft, queue)
        placed = msgspec.structs.replace(schedule, queue_id=queue.id)
        stored = await self._find_schedule(queue.id, schedule.name)
        next_at = await self._find_next_tick(placed, stored)
        note_changes(describe_schedule(stored), describe_schedule(placed))
        return await self.store.save_schedule(msgspec.structs.replace(placed, next_at=next_at))

    async def _find_schedule(self, queue_id: int, name: str) -> Schedule | None:
        for each in await self.store.schedules():
            if (each.queue_id, each.name) == (queue_id, name):
                return each
        return None

    async def _find_next_tick(self, schedule: Schedule, stored: Schedule | None) -> Moment:
        """Keeps the next tick, due or missed, of a running schedule with the same ticks."""
        if stored and get_ticks(stored) == get_ticks(schedule) and not stored.paused:
            return stored.next_at
        # Imported late, because it is slow to load.
        from penstock.rules.cron import find_next_tick

        return find_next_tick(schedule.cron, schedule.timezone, await self.store.now())

    async def schedules(self, *, scope: str = "default") -> list[Schedule]:
        ids = {queue.id for queue in await self.queues(scope=scope)}
        return [each for each in await self.store.schedules() if each.queue_id in ids]

    async def get_schedule(self, queue: str, name: str, *, scope: str = "default") -> Schedule:
        """Returns a schedule whose draft has the present name of its queue."""
        found = await self.queue(queue, scope=scope)
        stored = await self._find_schedule(found.id, name)
        if stored is None:
            raise NotFound(f"no schedule named {name!r} on queue {queue!r}")
        draft = msgspec.structs.replace(stored.draft, queue=found.name)
        return msgspec.structs.replace(stored, draft=draft)

    async def pause_schedule(self, queue: str, name: str, *, scope: str = "default") -> Schedule:
        return await self._switch_schedule(queue, name, scope, paused=True)

    async def resume_schedule(self, queue: str, name: str, *, scope: str = "default") -> Schedule:
        return await self._switch_schedule(queue, name, scope, paused=False)

    async def _switch_schedule(
        self, queue: str, name: str, scope: str, *, paused: bool
    ) -> Schedule:
        """Changes nothing else, and checks nothing: one that no longer fits can be paused."""
        stored = await self.get_schedule(queue, name, scope=scope)
        switched = msgspec.structs.replace(stored, paused=paused)
        note_changes({"paused": stored.paused}, {"paused": paused})
        next_at = await self._find_next_tick(switched, stored)
        return await self.store.save_schedule(msgspec.structs.replace(switched, next_at=next_at))

    async def unschedule(self, queue: str, name: str, *, scope: str = "default") -> None:
        stored = await self.get_schedule(queue, name, scope=scope)
        note_changes(describe_schedule(stored), {})
        await self.store.delete_schedule(stored.id)


def describe_schedule(schedule: Schedule | None) -> dict[str, Any]:
    """Returns the fields that an operator sets, for the audit log."""
    if schedule is None:
        return {}
    fields: dict[str, Any] = msgspec.to_builtins(schedule)
    return {name: fields[name] for name in ("cron", "timezone", "missed", "paused", "draft")}


def get_ticks(schedule: Schedule) -> tuple[object, ...]:
    return schedule.queue_id, schedule.name, schedule.cron, schedule.timezone


def check_own_name(name: str) -> None:
    validation.check_name("queue", name)
    if name.startswith("_"):
        raise Forbidden(f"queue {name!r}: names that begin with '_' are reserved")


def is_allowed(admin: QueueAdmin, scope: str, queue: str = EVERY) -> bool:
    return admin.allows is None or admin.allows(scope, queue)


def check_allowed(admin: QueueAdmin, scope: str, queue: str = EVERY) -> None:
    if not is_allowed(admin, scope, queue):
        what = f"scope {scope!r}" if queue == EVERY else f"queue {queue!r} of scope {scope!r}"
        raise Forbidden(f"this caller has no access to {validation.clip(what)}")
