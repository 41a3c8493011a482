"""Stores scopes, queues, schedules and workers."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from penstock.errors import NotFound, SlugConflict, StoreBusy
from penstock.model.message import Moment
from penstock.model.queue import (
    CALLBACK,
    CALLBACK_SETTINGS,
    DEAD_LETTER,
    Queue,
    QueueState,
    Schedule,
    Scope,
)
from penstock.model.settings import QueueSettings
from penstock.model.store_types import WorkerInfo
from penstock.retry_policies import QUEUE_CHANGE, Retries
from penstock.stores.redis.codec import decode_moment, encode_queue_id
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.sql.records import decode_schedule, encode_profile, make_worker

encode = msgspec.json.Encoder().encode
decode_workers = msgspec.json.Decoder(tuple[str, int, str]).decode


class StoredScope(msgspec.Struct, frozen=True):
    tenant: str
    name: str


class StoredQueue(msgspec.Struct, frozen=True):
    scope: int
    name: str
    state: QueueState
    settings: QueueSettings


decode_scope = msgspec.json.Decoder(StoredScope).decode
decode_queue = msgspec.json.Decoder(StoredQueue).decode


class RedisQueues:
    def __init__(self, database: RedisDatabase) -> None:
        self.database = database

    async def create_defaults(self) -> None:
        """Creates the default scope with its dead-letter and default queues."""
        found = await self.scope("default", "default")
        try:
            found = found or await self.create_scope("default", "default")
            for name, settings in (("default", QueueSettings()), (CALLBACK, CALLBACK_SETTINGS)):
                if await self.queue("default", "default", name) is None:
                    await self.create_queue(found.id, name, settings)
        except SlugConflict:
            # Another process created it first.
            return

    async def secret(self) -> bytes:
        return bytes.fromhex((await self.database.ask("HGET", "fact", "secret")).decode())

    async def directory_version(self) -> int:
        return int(await self.database.ask("HGET", "fact", "directory") or 0)

    async def create_scope(self, tenant: str, name: str) -> Scope:
        stored = encode(StoredScope(tenant, name))
        dead_letters = encode(StoredQueue(0, DEAD_LETTER, QueueState.ACTIVE, QueueSettings()))
        # Removes the scope, whose number only the script knows.
        rest = dead_letters.removeprefix(b'{"scope":0')
        id = await self.database.run(
            "create_scope", encode((tenant, name)), b"0" + stored, DEAD_LETTER, rest
        )
        if not id:
            raise SlugConflict(f"tenant {tenant!r} already has a scope {name!r}")
        return Scope(id, tenant, name)

    async def scope(self, tenant: str, name: str) -> Scope | None:
        id = await self.database.ask("HGET", "scope_name", encode((tenant, name)))
        if id is None:
            return None
        return parse_scope(id, await self.database.ask("HGET", "scope", id))

    async def pause_scope(self, scope_id: int, paused: bool) -> None:
        await self.database.run("pause_scope", scope_id, int(paused))

    async def create_queue(self, scope_id: int, name: str, settings: QueueSettings) -> Queue:
        await self.prepare(settings)
        stored = StoredQueue(scope_id, name, QueueState.ACTIVE, settings)
        id = await self.database.run(
            "create_queue", make_name_field(scope_id, name), encode(stored)
        )
        if not id:
            raise SlugConflict(f"queue {name!r} already exists")
        return await self.queue_of(encode_queue_id(id), encode(stored))

    async def queues(self, tenant: str | None = None, scope: str | None = None) -> list[Queue]:
        scopes = {
            int(id): parse_scope(id, text)
            for id, text in (await self.database.pairs("scope")).items()
        }
        found: list[Queue] = []
        for id, text in (await self.database.pairs("queue")).items():
            stored = decode_queue(text)
            # A scope created between the two reads appears the next time.
            if (its := scopes.get(stored.scope)) is not None:
                found.append(Queue(int(id, 16), its, stored.name, stored.state, stored.settings))
        fitting = [
            each
            for each in found
            if tenant in (None, each.scope.tenant) and scope in (None, each.scope.name)
        ]
        return sorted(fitting, key=sort_by_id)

    async def queue(self, tenant: str, scope: str, name: str) -> Queue | None:
        found = await self.scope(tenant, scope)
        if found is None:
            return None
        id = await self.database.ask("HGET", "queue_name", make_name_field(found.id, name))
        return None if id is None else await self.queue_of(id, await self.read_stored(id))

    async def read_stored(self, id: bytes) -> bytes:
        text: bytes | None = await self.database.ask("HGET", "queue", id)
        if text is None:
            raise NotFound(f"queue {int(id, 16)} does not exist")
        return text

    async def queue_of(self, id: bytes, text: bytes) -> Queue:
        stored = decode_queue(text)
        scope = parse_scope(
            b"%d" % stored.scope, await self.database.ask("HGET", "scope", stored.scope)
        )
        return Queue(int(id, 16), scope, stored.name, stored.state, stored.settings)

    async def change_queue(
        self,
        queue_id: int,
        *,
        name: str | None = None,
        state: QueueState | None = None,
        settings: QueueSettings | None = None,
    ) -> None:
        await self.prepare(settings)
        given = {"name": name, "state": state, "settings": settings}
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        id = encode_queue_id(queue_id)

        async def change() -> Any:
            text = await self.read_stored(id)
            old = decode_queue(text)
            new = msgspec.structs.replace(old, **changes)
            fields = (make_name_field(old.scope, old.name), make_name_field(new.scope, new.name))
            return await self.database.run("change_queue", id, text, encode(new), *fields)

        if await retry_changed(queue_id, change) == b"taken":
            raise SlugConflict(f"queue {name!r} already exists")

    async def prepare(self, settings: QueueSettings | None) -> None:
        """Builds the index that a queue's settings need."""
        if settings is not None and settings.filter_by_type:
            await self.index_types()

    async def index_types(self) -> None:
        if await self.database.ask("HGET", "fact", "typed") is None:
            await self.database.run("index_types")

    async def delete_queue(self, queue_id: int) -> bool:
        id = encode_queue_id(queue_id)

        async def delete() -> Any:
            text = await self.read_stored(id)
            old = decode_queue(text)
            new = msgspec.structs.replace(old, state=QueueState.DELETED)
            schedules = [each for each in await self.schedules() if each.queue_id == queue_id]
            fields = [(each.id, make_name_field(queue_id, each.name)) for each in schedules]
            return await self.database.run(
                "delete_queue",
                id,
                text,
                encode(new),
                make_name_field(old.scope, old.name),
                *(word for pair in fields for word in pair),
            )

        return bool(await retry_changed(queue_id, delete) == b"done")

    async def save_schedule(self, schedule: Schedule) -> Schedule:
        rest = b"%d " % schedule.queue_id + encode(schedule)
        id, text = await self.database.run(
            "save_schedule",
            make_name_field(schedule.queue_id, schedule.name),
            int(schedule.paused),
            schedule.next_at,
            rest,
        )
        return parse_schedule(id, text)

    async def schedules(self, due_by: Moment | None = None) -> list[Schedule]:
        found = [parse_schedule(*pair) for pair in (await self.database.pairs("schedule")).items()]
        if due_by is None:
            return sorted(found, key=lambda each: each.id)
        due = [each for each in found if not each.paused and each.next_at <= due_by]
        return sorted(due, key=lambda each: (each.next_at, each.id))

    async def delete_schedule(self, schedule_id: int) -> bool:
        text = await self.database.ask("HGET", "schedule", schedule_id)
        if text is None:
            return False
        schedule = parse_schedule(b"%d" % schedule_id, text)
        name = make_name_field(schedule.queue_id, schedule.name)
        return bool(await self.database.run("delete_schedule", schedule_id, name))

    async def save_worker(self, worker: WorkerInfo) -> None:
        said = encode((worker.host, worker.pid, encode_profile(worker)))
        await self.database.run("save_worker", worker.id, said)

    async def workers(self) -> list[WorkerInfo]:
        found = [decode_worker(*pair) for pair in (await self.database.pairs("worker")).items()]
        return sorted(found, key=lambda each: (each.started_at, each.id))

    async def stop_worker(self, worker_id: str) -> None:
        await self.database.run("stop_worker", worker_id)

    async def delete_worker(self, worker_id: str) -> None:
        await self.database.ask("HDEL", "worker", worker_id, writes=True)


async def retry_changed(queue_id: int, change: Callable[[], Awaitable[Any]]) -> Any:
    """Runs a change again while another process changes the same queue."""
    retries: Retries | None = None
    while (answer := await change()) == b"again":
        retries = retries or QUEUE_CHANGE.begin()
        if not await retries.again():
            raise StoreBusy(f"queue {queue_id} is being changed by another process; try again")
    return answer


def make_name_field(parent: int, name: str) -> bytes:
    return b"%d:%s" % (parent, name.encode())


def parse_scope(id: bytes, text: bytes) -> Scope:
    stored = decode_scope(text[1:])
    return Scope(int(id), stored.tenant, stored.name, text[:1] == b"1")


def sort_by_id(queue: Queue) -> tuple[str, str, str, int]:
    return queue.scope.tenant, queue.scope.name, queue.name, queue.id


def parse_schedule(id: bytes, text: bytes) -> Schedule:
    paused, next_at, last_at, queue_id, plan = text.split(b" ", 4)
    return msgspec.structs.replace(
        decode_schedule(plan),
        id=int(id),
        queue_id=int(queue_id),
        paused=paused == b"1",
        next_at=int(next_at),
        last_at=decode_moment(last_at),
    )


def decode_worker(id: bytes, text: bytes) -> WorkerInfo:
    started_at, seen_at, stopping, said = text.split(b" ", 3)
    host, pid, profile = decode_workers(said)
    return make_worker(
        (id.decode(), host, pid, profile, int(started_at), int(seen_at), stopping == b"1")
    )
