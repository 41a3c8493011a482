"""Ordering keys (one message at a time per key), unique keys, and how a message ends.

Ending a message frees its keys, nudges the messages that wait for it and publishes its callback.
"""

from penstock.model.message import NEVER, Flag, State
from penstock.model.queue import CALLBACK
from penstock.rules.callbacks import TYPE, make_body, make_meta
from penstock.stores.sql.transaction import Lockable, SqlTransaction, Ticket


def make_lockable(queue_id: int, key: str) -> Lockable:
    return ("key", queue_id, key)


async def get_in_line(tx: SqlTransaction, ticket: Ticket, key: str, position: int) -> None:
    """Queues the message behind its ordering key; makes it ready if the key is free."""
    if tx.foreign:
        # The scheduler puts a due message in line after this commits.
        await tx.put_scheduled(ticket, tx.now, key)
        return
    await tx.put_scheduled(ticket, NEVER, key, position)
    await advance(tx, ticket.queue_id, key)


async def advance(tx: SqlTransaction, queue_id: int, key: str) -> None:
    """Makes the key's next message ready, unless another still holds the key."""
    await tx.lock(make_lockable(queue_id, key))
    if await tx.one("head", queue_id=queue_id, key=key) is not None:
        return
    while (first := await tx.one("first_in_line", queue_id=queue_id, key=key)) is not None:
        row = await tx.one("take_scheduled", id=first[0])
        # It may have been cancelled since.
        if row is not None:
            await tx.run("take_head", queue_id=queue_id, key=key, id=first[0])
            await tx.put_ready(Ticket(*row))
            return


async def find_end_of_line(tx: SqlTransaction) -> int:
    """Returns a position behind every message published so far."""
    position: int = (await tx.one("end_of_line"))[0]
    return position


async def free(tx: SqlTransaction, id: int, flags: int) -> None:
    """Frees the keys of a finished or dead message."""
    if flags & Flag.KEYED:
        await free_head(tx, id)
    if flags & Flag.UNIQUE:
        await tx.run("unique_free", id=id)


async def free_head(tx: SqlTransaction, id: int) -> None:
    head = await tx.one("head_of", id=id)
    if head is not None:
        queue_id, key = head
        await tx.lock(make_lockable(queue_id, key))
        await tx.run("free_head", id=id)
        await advance(tx, queue_id, key)


async def finalize(
    tx: SqlTransaction, id: int, flags: int, state: State, reason: str | None = None
) -> None:
    """Call it when the message is finished or dead."""
    await free(tx, id, flags)
    if flags & Flag.AWAITED:
        await tx.run("nudge_awaiting", id=id)
        if state is State.COMPLETED:
            await tx.run("keep_nothing", ids=tx.encode_ids([id]), now=tx.now)
    if flags & Flag.HELD:
        await tx.run("drop_holds_of", id=id)
        await tx.run("drop_nudges_of", id=id)
    if flags & Flag.CALLBACK:
        await publish_callback(tx, id, state, reason)


async def publish_callback(tx: SqlTransaction, id: int, state: State, reason: str | None) -> None:
    queue_id = (await tx.one("queue", tenant="default", scope="default", name=CALLBACK))[0]
    row = await tx.one(
        "publish_checked",
        queue_id=queue_id,
        type=TYPE,
        priority=0,
        rank=0,
        created_at=tx.now,
        run_at=None,
        expires_at=None,
        body=make_body(id, state, reason),
        meta=make_meta(id),
    )
    await tx.put_ready(Ticket(queue_id, 0, row[0], TYPE, 0, 0, NEVER, 0))
