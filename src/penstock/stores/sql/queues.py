"""Stores scopes, queues, schedules and workers."""

from penstock.errors import SlugConflict
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
from penstock.stores.sql.records import (
    encode,
    encode_profile,
    make_queue,
    make_schedule,
    make_worker,
)
from penstock.stores.sql.transaction import SqlTransaction


async def create_defaults(tx: SqlTransaction) -> None:
    """Creates the default scope with its dead-letter and default queues, the secret, and the
    callback queue, which an older store may lack."""
    default = await scope(tx, "default", "default")
    if default is None:
        default = await create_scope(tx, "default", "default")
        await create_queue(tx, default.id, "default", QueueSettings())
        await tx.run("fact_set", name="secret", value=make_secret())
    if await queue(tx, "default", "default", CALLBACK) is None:
        await create_queue(tx, default.id, CALLBACK, CALLBACK_SETTINGS)


def make_secret() -> str:
    import secrets

    return secrets.token_hex(32)


async def secret(tx: SqlTransaction) -> bytes:
    return bytes.fromhex((await tx.one("fact", name="secret"))[0])


async def directory_version(tx: SqlTransaction) -> int:
    version: int = (await tx.one("number", name="directory"))[0]
    return version


async def create_scope(tx: SqlTransaction, tenant: str, name: str) -> Scope:
    row = await tx.one("scope_create", tenant=tenant, name=name)
    if row is None:
        raise SlugConflict(f"tenant {tenant!r} already has a scope {name!r}")
    await create_queue(tx, row[0], DEAD_LETTER, QueueSettings())
    return Scope(row[0], tenant, name)


async def scope(tx: SqlTransaction, tenant: str, name: str) -> Scope | None:
    row = await tx.one("scope", tenant=tenant, name=name)
    return None if row is None else Scope(row[0], tenant, name, bool(row[3]))


async def pause_scope(tx: SqlTransaction, scope_id: int, paused: bool) -> None:
    await tx.run("scope_pause", paused=paused, id=scope_id)
    await tx.next_number("directory")


async def create_queue(
    tx: SqlTransaction, scope_id: int, name: str, settings: QueueSettings
) -> Queue:
    row = await tx.one(
        "queue_create", scope_id=scope_id, name=name, settings=encode(settings).decode()
    )
    if row is None:
        raise SlugConflict(f"queue {name!r} already exists")
    await tx.next_number("directory")
    return make_queue(await tx.one("queue_by_id", id=row[0]))


async def queues(tx: SqlTransaction, tenant: str | None, scope: str | None) -> list[Queue]:
    return [make_queue(row) for row in await tx.all("queues", tenant=tenant, scope=scope)]


async def queue(tx: SqlTransaction, tenant: str, scope: str, name: str) -> Queue | None:
    row = await tx.one("queue", tenant=tenant, scope=scope, name=name)
    return None if row is None else make_queue(row)


async def change_queue(
    tx: SqlTransaction,
    queue_id: int,
    name: str | None,
    state: QueueState | None,
    settings: QueueSettings | None,
) -> None:
    if name is not None:
        await refuse_taken(tx, queue_id, name)
    text = None if settings is None else encode(settings).decode()
    await tx.run(
        "queue_change",
        id=queue_id,
        name=name,
        state=None if state is None else state.value,
        settings=text,
    )
    await tx.next_number("directory")


async def refuse_taken(tx: SqlTransaction, queue_id: int, name: str) -> None:
    here = make_queue(await tx.one("queue_by_id", id=queue_id)).scope
    other = await queue(tx, here.tenant, here.name, name)
    if other is not None and other.id != queue_id:
        raise SlugConflict(f"queue {name!r} already exists")


async def delete_queue(tx: SqlTransaction, queue_id: int) -> bool:
    if (await tx.one("queue_holds", id=queue_id))[0]:
        return False
    deleted = QueueState.DELETED.value
    await tx.run("queue_change", id=queue_id, name=None, state=deleted, settings=None)
    await tx.run("queue_unschedule", id=queue_id)
    await tx.next_number("directory")
    return True


async def save_schedule(tx: SqlTransaction, schedule: Schedule) -> Schedule:
    row = await tx.one(
        "schedule_save",
        queue_id=schedule.queue_id,
        name=schedule.name,
        paused=schedule.paused,
        next_at=schedule.next_at,
        plan=encode(schedule).decode(),
    )
    return make_schedule(row)


async def schedules(tx: SqlTransaction, due_by: Moment | None) -> list[Schedule]:
    if due_by is None:
        rows = await tx.all("schedules")
    else:
        rows = await tx.all("schedules_due", due_by=due_by)
    return [make_schedule(row) for row in rows]


async def delete_schedule(tx: SqlTransaction, schedule_id: int) -> bool:
    return await tx.run("schedule_delete", id=schedule_id) > 0


async def save_worker(tx: SqlTransaction, worker: WorkerInfo) -> None:
    await tx.run(
        "worker_save",
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        profile=encode_profile(worker),
        now=tx.now,
    )


async def workers(tx: SqlTransaction) -> list[WorkerInfo]:
    return [make_worker(row) for row in await tx.all("workers")]


async def stop_worker(tx: SqlTransaction, worker_id: str) -> None:
    await tx.run("worker_stop", id=worker_id)


async def delete_worker(tx: SqlTransaction, worker_id: str) -> None:
    await tx.run("worker_delete", id=worker_id)
