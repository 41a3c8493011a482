"""Scopes, queues, schedules and workers."""

import msgspec

from penstock.errors import SlugConflict
from penstock.message import Moment
from penstock.queue import DEAD_LETTER, Queue, QueueState, Schedule, Scope
from penstock.settings import QueueSettings
from penstock.stores.sqlite.rows import queue_of, schedule_of
from penstock.stores.sqlite.transaction import Transaction
from penstock.ticket import Working

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(list[str]).decode


def directory_version(tx: Transaction) -> int:
    version: int = tx.one("number", ("directory",))[0]
    return version


def create_scope(tx: Transaction, tenant: str, name: str) -> Scope:
    row = tx.one("scope_create", (tenant, name))
    if row is None:
        raise SlugConflict(f"tenant {tenant!r} already has a scope named {name!r}")
    create_queue(tx, row[0], DEAD_LETTER, QueueSettings())
    return Scope(row[0], tenant, name)


def scope(tx: Transaction, tenant: str, name: str) -> Scope | None:
    row = tx.one("scope", (tenant, name))
    return None if row is None else Scope(row[0], tenant, name, bool(row[3]))


def pause_scope(tx: Transaction, scope_id: int, paused: bool) -> None:
    tx.run("scope_pause", (paused, scope_id))
    tx.next_number("directory")


def create_queue(tx: Transaction, scope_id: int, name: str, settings: QueueSettings) -> Queue:
    row = tx.one("queue_create", (scope_id, name, encode(settings).decode()))
    if row is None:
        raise SlugConflict(f"there is already a queue named {name!r}")
    changed(tx, settings)
    return queue_of(tx.one("queue_by_id", row))


def queues(tx: Transaction, tenant: str | None, scope: str | None) -> list[Queue]:
    return [queue_of(row) for row in tx.all("queues", {"tenant": tenant, "scope": scope})]


def queue(tx: Transaction, tenant: str, scope: str, name: str) -> Queue | None:
    row = tx.one("queue", (tenant, scope, name))
    return None if row is None else queue_of(row)


def change_queue(
    tx: Transaction,
    queue_id: int,
    name: str | None,
    state: QueueState | None,
    settings: QueueSettings | None,
) -> None:
    if name is not None:
        refuse_taken(tx, queue_id, name)
    text = None if settings is None else encode(settings).decode()
    tx.run("queue_change", (name, None if state is None else state.value, text, queue_id))
    changed(tx, settings)


def refuse_taken(tx: Transaction, queue_id: int, name: str) -> None:
    here = queue_of(tx.one("queue_by_id", (queue_id,))).scope
    other = queue(tx, here.tenant, here.name, name)
    if other is not None and other.id != queue_id:
        raise SlugConflict(f"there is already a queue named {name!r}")


def changed(tx: Transaction, settings: QueueSettings | None) -> None:
    if settings is not None and settings.filter_by_type:
        tx.run("index_types")
    tx.next_number("directory")


def delete_queue(tx: Transaction, queue_id: int) -> bool:
    if tx.one("queue_holds", {"id": queue_id})[0]:
        return False
    tx.run("queue_change", (None, QueueState.DELETED.value, None, queue_id))
    tx.run("queue_unschedule", (queue_id,))
    tx.next_number("directory")
    return True


def save_schedule(tx: Transaction, schedule: Schedule) -> Schedule:
    row = (
        schedule.queue_id,
        schedule.name,
        schedule.paused,
        schedule.next_at,
        encode(schedule).decode(),
    )
    return schedule_of(tx.one("schedule_save", row))


def schedules(tx: Transaction, due_by: Moment | None) -> list[Schedule]:
    rows = tx.all("schedules") if due_by is None else tx.all("schedules_due", (due_by,))
    return [schedule_of(row) for row in rows]


def delete_schedule(tx: Transaction, schedule_id: int) -> bool:
    return tx.run("schedule_delete", (schedule_id,)).rowcount > 0


def save_worker(tx: Transaction, worker: Working) -> None:
    queues = encode(worker.queues).decode()
    row = (worker.id, worker.host, worker.pid, queues, tx.now, tx.now)
    tx.run("worker_save", row)


def workers(tx: Transaction) -> list[Working]:
    return [
        Working(id, host, pid, tuple(decode(queues)), started_at, seen_at, bool(stopping))
        for id, host, pid, queues, started_at, seen_at, stopping in tx.all("workers")
    ]


def stop_worker(tx: Transaction, worker_id: str) -> None:
    tx.run("worker_stop", (worker_id,))


def delete_worker(tx: Transaction, worker_id: str) -> None:
    tx.run("worker_delete", (worker_id,))
