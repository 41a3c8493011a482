"""Ends a message: frees its keys, nudges the messages that wait for it, publishes its callback."""

from penstock.model.message import NEVER, Flag, State
from penstock.model.queue import CALLBACK
from penstock.rules.callbacks import TYPE, make_body, make_meta
from penstock.stores.sql.ordering_keys import free
from penstock.stores.sql.transaction import SqlTransaction, Ticket


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
