"""Applies a topology in one script."""

from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.errors import InvalidState, TopologyChanged
from penstock.model.queue import DEAD_LETTER, Queue, QueueState, Schedule
from penstock.model.settings import QueueSettings
from penstock.model.topology import TopologyChange
from penstock.stores.redis.codec import encode_queue_id, make_document_field
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.redis.queues import (
    RedisQueues,
    StoredQueue,
    StoredScope,
    encode,
    make_name_field,
)
from penstock.stores.sql.topology import MOVED


class RedisTopology:
    def __init__(self, database: RedisDatabase, catalog: RedisQueues) -> None:
        self.database = database
        self.catalog = catalog

    async def apply(self, change: TopologyChange) -> None:
        for settings in change.settings:
            await self.catalog.prepare(settings)
        lists = encode(await self._encode_change(change))
        reply: bytes = await self.database.run("apply", change.directory_version, lists)
        if reply == b"moved":
            raise TopologyChanged(MOVED)
        if reply.startswith(b"holds "):
            held = int(reply.partition(b" ")[2], 16)
            name = next(each.name for each in change.deleted_queues if each.id == held)
            raise InvalidState(f"queue {name!r} has unfinished messages; nothing was applied")

    async def _encode_change(self, change: TopologyChange) -> dict[str, list[Any]]:
        """Numbers become text, because the script would read them as doubles."""
        schedules = {each.id: each for each in change.deleted_schedules}
        if change.deleted_queues:
            gone = {queue.id for queue in change.deleted_queues}
            found = await self.catalog.schedules()
            schedules |= {each.id: each for each in found if each.queue_id in gone}
        documents = [(make_document_field(each.kind, each.name), each) for each in change.documents]
        return {
            "expected": [
                [to_text(field), str(each.version)]
                for field, each in documents
                if each.version is not None
            ],
            "scopes": [encode_scope(change.tenant, name) for name in change.new_scopes],
            "queues": [
                [scope_field(change.tenant, new.scope), new.name,
                 strip_scope(StoredQueue(0, new.name, QueueState.ACTIVE, new.settings))]
                for new in change.new_queues
            ],
            "changed": [await self._encode_queue(*pair) for pair in change.changed_queues],
            "deleted": [await self._encode_deleted(queue) for queue in change.deleted_queues],
            "schedules": [
                [scope_field(change.tenant, each.scope), each.queue, each.schedule.name,
                 str(int(each.schedule.paused)), str(each.schedule.next_at),
                 encode(each.schedule).decode()]
                for each in change.schedules
            ],
            "unscheduled": [encode_schedule_key(each) for each in schedules.values()],
            "documents": [
                [to_text(field), str(each.expires_at), each.body.decode()]
                for field, each in documents
            ],
            "undocumented": [
                to_text(make_document_field(*each)) for each in change.deleted_documents
            ],
        }  # fmt: skip

    async def _encode_queue(self, queue: Queue, settings: QueueSettings) -> list[str]:
        id = encode_queue_id(queue.id)
        text = await self.catalog.read_stored(id)
        stored = msgspec.json.decode(text, type=StoredQueue)
        new = encode(replace(stored, settings=settings))
        return [id.decode(), text.decode(), new.decode()]

    async def _encode_deleted(self, queue: Queue) -> list[str]:
        id = encode_queue_id(queue.id)
        text = await self.catalog.read_stored(id)
        stored = msgspec.json.decode(text, type=StoredQueue)
        new = encode(replace(stored, state=QueueState.DELETED))
        name = to_text(make_name_field(stored.scope, stored.name))
        return [id.decode(), text.decode(), new.decode(), name]


def scope_field(tenant: str, scope: str) -> str:
    return encode((tenant, scope)).decode()


def encode_scope(tenant: str, name: str) -> list[str]:
    text = "0" + encode(StoredScope(tenant, name)).decode()
    dead_letters = StoredQueue(0, DEAD_LETTER, QueueState.ACTIVE, QueueSettings())
    return [scope_field(tenant, name), text, DEAD_LETTER, strip_scope(dead_letters)]


def strip_scope(queue: StoredQueue) -> str:
    """Removes the scope, whose number only the script knows."""
    return encode(queue).decode().removeprefix('{"scope":0')


def encode_schedule_key(schedule: Schedule) -> list[str]:
    return [str(schedule.id), to_text(make_name_field(schedule.queue_id, schedule.name))]


def to_text(field: bytes) -> str:
    return field.decode()
