"""Applies a topology in one transaction."""

from msgspec.structs import replace

from penstock.errors import InvalidState, TopologyChanged
from penstock.model.topology import TopologyChange
from penstock.stores.sql import documents, queues
from penstock.stores.sql.transaction import SqlTransaction

MOVED = "queues, scopes, rules or schemas were changed meanwhile: nothing was applied; try again"


async def apply(tx: SqlTransaction, change: TopologyChange) -> bool:
    # Counting first locks the number: other changes of the directory wait for this one.
    if await tx.next_number("directory") != change.directory_version + 1:
        raise TopologyChanged(MOVED)
    names = [(each.kind, each.name) for each in change.documents] + [*change.deleted_documents]
    await tx.lock(*sorted({documents.make_lockable(*each) for each in names}))
    for name in change.new_scopes:
        await queues.create_scope(tx, change.tenant, name)
    await apply_queues(tx, change)
    await apply_schedules(tx, change)
    for document in change.documents:
        if not await documents.save_one(tx, document):
            raise TopologyChanged(MOVED)
    for kind, name in change.deleted_documents:
        await tx.run("document_delete", kind=kind, name=name)
    return True


async def apply_queues(tx: SqlTransaction, change: TopologyChange) -> None:
    for new in change.new_queues:
        scope = await queues.scope(tx, change.tenant, new.scope)
        if scope is None:
            raise TopologyChanged(MOVED)
        await queues.create_queue(tx, scope.id, new.name, new.settings)
    for queue, settings in change.changed_queues:
        await queues.change_queue(tx, queue.id, None, None, settings)
    for queue in change.deleted_queues:
        if not await queues.delete_queue(tx, queue.id):
            raise InvalidState(f"queue {queue.name!r} has unfinished messages; nothing was applied")


async def apply_schedules(tx: SqlTransaction, change: TopologyChange) -> None:
    for each in change.schedules:
        queue = await queues.queue(tx, change.tenant, each.scope, each.queue)
        if queue is None:
            raise TopologyChanged(MOVED)
        await queues.save_schedule(tx, replace(each.schedule, queue_id=queue.id))
    for schedule in change.deleted_schedules:
        await queues.delete_schedule(tx, schedule.id)
