"""The verbs of operators: scopes, queues, schedules, and messages wherever they are."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock import admission, checks
from penstock.directory import Directory
from penstock.errors import (
    Busy,
    Forbidden,
    InvalidInput,
    InvalidState,
    NotFound,
    PenstockError,
)
from penstock.message import Draft, Message, Record, State
from penstock.queue import Queue, QueueState, Schedule, Scope
from penstock.settings import change, preset
from penstock.store import Store
from penstock.ticket import Answer, AnswerKind, Published, Query

PURGEABLE = ("ready", "scheduled", "dead")


class Admin:
    def __init__(self, store: Store, directory: Directory, tenant: str) -> None:
        self.store = store
        self.directory = directory
        self.tenant = tenant

    async def create_scope(self, name: str) -> Scope:
        checks.check_name("scope", name)
        scope = await self.store.create_scope(self.tenant, name)
        self.directory.forget()
        return scope

    async def pause_scope(self, name: str, *, paused: bool = True) -> None:
        scope = await self.store.scope(self.tenant, name)
        if scope is None:
            raise NotFound(f"no scope named {name!r}")
        await self.store.pause_scope(scope.id, paused)
        self.directory.forget()

    async def create_queue(
        self, name: str, *, preset_name: str = "default", scope: str = "default", **settings: Any
    ) -> Queue:
        own_name(name)
        found = await self.store.scope(self.tenant, scope)
        if found is None:
            raise NotFound(f"no scope named {scope!r}")
        queue = await self.store.create_queue(found.id, name, change(preset(preset_name), settings))
        self.directory.forget()
        return queue

    async def queue(self, name: str, *, scope: str = "default") -> Queue:
        return await self.directory.named(self.tenant, scope, name)

    async def queues(self, *, scope: str | None = None) -> list[Queue]:
        found = await self.store.queues(self.tenant, scope)
        return [queue for queue in found if queue.state is not QueueState.DELETED]

    async def set_queue(self, name: str, *, scope: str = "default", **settings: Any) -> Queue:
        queue = await self.queue(name, scope=scope)
        await self.store.change_queue(queue.id, settings=change(queue.settings, settings))
        return await self._again(name, scope)

    async def set_state(self, name: str, state: QueueState, *, scope: str = "default") -> Queue:
        """pause, resume (active), drain, archive."""
        queue = await self.queue(name, scope=scope)
        if state is QueueState.DELETED:
            raise InvalidInput("delete a queue with delete_queue")
        await self.store.change_queue(queue.id, state=state)
        return await self._again(name, scope)

    async def rename_queue(self, name: str, new_name: str, *, scope: str = "default") -> Queue:
        queue = await self.queue(name, scope=scope)
        own_name(queue.name)
        own_name(new_name)
        await self.store.change_queue(queue.id, name=new_name)
        return await self._again(new_name, scope)

    async def delete_queue(self, name: str, *, force: bool = False, scope: str = "default") -> None:
        """Refused while it holds unfinished messages; `force` cancels those first."""
        queue = await self.queue(name, scope=scope)
        own_name(queue.name)
        if force:
            await self.store.change_queue(queue.id, state=QueueState.ARCHIVED)
            await self._empty(queue)
        if not await self.store.delete_queue(queue.id):
            raise InvalidState(f"queue {name!r} holds unfinished messages")
        self.directory.forget()

    async def _empty(self, queue: Queue) -> None:
        while await self.store.purge(queue.id, PURGEABLE, 1_000):
            pass
        while held := await self.store.find(Query((queue.id,), State.CLAIMED)):
            await self.store.cancel([record.message.id for record in held], force=True)

    async def _again(self, name: str, scope: str) -> Queue:
        self.directory.forget()
        return await self.queue(name, scope=scope)

    async def get(self, reference: int | str, *, scope: str = "default") -> Record:
        """By id, or by `queue/name`."""
        return await self._own(await self._id(reference, scope))

    async def result(self, reference: int | str, *, scope: str = "default") -> bytes | None:
        id = await self._id(reference, scope)
        await self._own(id)
        return await self.store.result(id)

    async def _id(self, reference: int | str, scope: str) -> int:
        if isinstance(reference, str) and "/" in reference:
            return await self._named(reference, scope)
        number = reference if isinstance(reference, int) else -1
        if isinstance(reference, str) and reference.isascii() and reference.isdecimal():
            number = int(reference) if len(reference) < 20 else -1
        if not 0 <= number < 2**63:
            raise InvalidInput(f"{checks.clip(reference)} is neither an id nor queue/name")
        return number

    async def _named(self, reference: str, scope: str) -> int:
        queue_name, _, name = reference.partition("/")
        queue = await self.queue(queue_name, scope=scope)
        checks.check_text("name", name, 200)
        found = await self.store.named(queue.id, name)
        if found is None:
            raise NotFound(f"no message named {name!r} in queue {queue_name!r}")
        return found

    async def _own(self, id: int) -> Record:
        """Somebody else's message is not found, never forbidden."""
        record = await self.store.get(id)
        if record is not None:
            queue = await self.directory.numbered(record.message.queue_id)
            if queue.scope.tenant == self.tenant:
                return record
        raise NotFound(f"no message with id {id}")

    async def find(
        self,
        queue: str | None = None,
        *,
        state: State | None = None,
        type: str | None = None,
        correlation_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
        scope: str = "default",
    ) -> list[Record]:
        checks.check_number("limit", limit, 1, 1_000, whole=True, needed=True)
        checks.check_number("before", before, 0, 2**63 - 1, whole=True)
        for field, text in (("type", type), ("correlation_id", correlation_id)):
            if text is not None:
                checks.check_text(field, text, 200)
        queues = (
            await self.queues(scope=scope)
            if queue is None
            else [await self.queue(queue, scope=scope)]
        )
        ids = tuple(queue.id for queue in queues)
        return await self.store.find(Query(ids, state, type, correlation_id, before, limit))

    async def cancel(
        self, reference: int | str, *, force: bool = False, scope: str = "default"
    ) -> Answer:
        """A claimed message is only asked to stop, unless forced: then its fence is void."""
        record = await self.get(reference, scope=scope)
        (answer,) = await self.store.cancel((record.message.id,), force=force)
        return settled(answer, record)

    async def redrive(
        self, reference: int | str, *, body: bytes | None = None, scope: str = "default"
    ) -> Published:
        """A dead message is ready again in place; an ended or edited one is published anew."""
        record = await self.get(reference, scope=scope)
        message, edited = record.message, body is not None
        if record.state is State.DEAD and not edited:
            (answer,) = await self.store.redrive((message.id,))
            settled(answer, record)
            return Published(message.id)
        if not record.state.final and record.state is not State.DEAD:
            raise InvalidState(
                f"message {message.id} is {record.state}; only an ended one can be redriven"
            )
        queue = await self.directory.numbered(message.queue_id)
        draft = copy_of(message, queue.name, message.body if body is None else body)
        admission.check(draft, queue.settings)
        # What was accepted once is never refused for lack of room.
        entry = msgspec.structs.replace(admission.entry(draft, queue), max_depth=None)
        if record.state is State.DEAD:
            return await self.store.replace(message.id, entry)
        (published,) = await self.store.enqueue((entry,))
        return published

    async def redrive_many(self, ids: Sequence[int]) -> list[Answer | PenstockError]:
        outcomes: list[Answer | PenstockError] = []
        for id in ids:
            try:
                await self.redrive(id)
                outcomes.append(Answer(AnswerKind.DONE))
            except PenstockError as error:
                outcomes.append(error)
        return outcomes

    async def purge(
        self, name: str, *places: str, limit: int = 1_000, scope: str = "default"
    ) -> int:
        """Ends up to `limit` messages of these places as cancelled; says how many."""
        if wrong := set(places) - set(PURGEABLE):
            raise InvalidInput(f"{', '.join(wrong)}: purge takes {', '.join(PURGEABLE)}")
        checks.check_number("limit", limit, 0, 1_000_000, whole=True, needed=True)
        queue = await self.queue(name, scope=scope)
        return await self.store.purge(queue.id, places, limit)

    async def purge_dead(self, reference: int | str, *, scope: str = "default") -> Answer:
        """Ends one dead letter as cancelled."""
        record = await self.get(reference, scope=scope)
        (answer,) = await self.store.purge_dead((record.message.id,))
        return settled(answer, record)

    async def schedule(self, schedule: Schedule, *, scope: str = "default") -> Schedule:
        """Creates or changes the schedule of that name on the draft's queue."""
        checks.check_text("schedule name", schedule.name, 200)
        queue = await self.queue(schedule.draft.queue, scope=scope)
        if queue.system:
            raise Forbidden(f"queue {queue.name!r} is the system's; nobody publishes to it")
        admission.check(schedule.draft, queue.settings)
        # Only for this, and not quickly loaded.
        from penstock.cron import next_tick

        next_at = next_tick(schedule.cron, schedule.timezone, await self.store.now())
        placed = msgspec.structs.replace(schedule, queue_id=queue.id, next_at=next_at)
        return await self.store.save_schedule(placed)

    async def schedules(self, *, scope: str = "default") -> list[Schedule]:
        ids = {queue.id for queue in await self.queues(scope=scope)}
        return [each for each in await self.store.schedules() if each.queue_id in ids]

    async def unschedule(self, queue: str, name: str, *, scope: str = "default") -> None:
        found = await self.queue(queue, scope=scope)
        for each in await self.store.schedules():
            if (each.queue_id, each.name) == (found.id, name):
                await self.store.delete_schedule(each.id)
                return
        raise NotFound(f"no schedule named {name!r} on queue {queue!r}")


def own_name(name: str) -> None:
    checks.check_name("queue", name)
    if name.startswith("_"):
        raise Forbidden(f"queue {name!r}: names that begin with '_' are the system's")


def copy_of(message: Message, queue: str, body: bytes) -> Draft:
    """A new draft like the message: no name, no dedup key, its parent is the original."""
    meta = message.meta
    return Draft(
        body=body,
        queue=queue,
        type=message.type,
        priority=message.priority,
        headers=meta.headers,
        labels=meta.labels,
        content_type=meta.content_type,
        lease=meta.lease,
        timeout=meta.timeout,
        max_attempts=meta.max_attempts,
        max_deliveries=meta.max_deliveries,
        ordering_key=meta.ordering_key,
        correlation_id=meta.correlation_id,
        causation_id=meta.causation_id,
        parent_id=message.id,
        traceparent=meta.traceparent,
        hops=meta.hops,
    )


def settled(answer: Answer, record: Record) -> Answer:
    if answer.kind is AnswerKind.DONE:
        return answer
    if answer.kind is AnswerKind.BUSY:
        raise Busy(f"message {record.message.id} is held by somebody's open transaction; try again")
    state = answer.state or record.state
    raise InvalidState(f"message {record.message.id} is {state}, which does not allow that")
