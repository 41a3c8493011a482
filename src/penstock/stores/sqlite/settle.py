"""Settles deliveries as sets: complete and extend."""

from collections.abc import Iterable, Sequence

import msgspec

from penstock.model.message import State, Verb
from penstock.model.store_types import DONE, Answer, Completion, Extension
from penstock.stores.sql.finalize import finalize
from penstock.stores.sql.settle import explain, extend_one, keep_result
from penstock.stores.sqlite.transaction import SqliteTransaction

encode = msgspec.json.Encoder().encode


async def complete(tx: SqliteTransaction, items: Sequence[Completion]) -> list[Answer]:
    """Completes as sets: writes history, then deletes the leases."""
    wanted = {(item.id, item.fence): item for item in reversed(items)}
    fences = dict(wanted.keys())
    if len(fences) < len(wanted):
        # The same id under two fences: complete one by one.
        return [answer for item in items for answer in await complete(tx, [item])]
    locks = encode(fences).decode()
    flagged = tx.execute("flagged", (locks,)).fetchall()
    cursor = tx.execute("complete_history", (tx.now, locks))
    count = cursor.rowcount
    if count:
        tx.execute("complete_remove", (locks,))
        for id, flags in flagged:
            await finalize(tx, id, flags, State.COMPLETED)
    if count == len(items):
        await keep_results(tx, items)
        return [DONE] * count
    last = cursor.lastrowid or 0
    done = set(tx.execute("history_tail", (last - count,))) if count else set()
    await keep_results(tx, [item for lock, item in wanted.items() if lock in done])
    return [await answer_completed(tx, item, done) for item in items]


async def answer_completed(
    tx: SqliteTransaction, item: Completion, done: set[tuple[int, int]]
) -> Answer:
    """Answers DONE once per lock; a repeat in the same batch is ALREADY_DONE."""
    lock = (item.id, item.fence)
    if lock in done:
        done.discard(lock)
        return DONE
    return await explain(tx, item.id, item.fence, Verb.COMPLETE)


async def keep_results(tx: SqliteTransaction, items: Iterable[Completion]) -> None:
    for item in items:
        await keep_result(tx, item)


async def extend(tx: SqliteTransaction, items: Sequence[Extension]) -> list[Answer]:
    return [await extend_one(tx, item) for item in items]
