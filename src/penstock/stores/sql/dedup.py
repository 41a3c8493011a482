"""Unique jobs: dedup keys of publishes and completions, and names."""

from penstock.errors import IdempotencyConflict
from penstock.model.message import NEVER, Moment
from penstock.model.store_types import Completion, Dedupe, Entry, Published
from penstock.rules.settlements import SEEN_WINDOW_S, make_seen_key
from penstock.stores.sql.transaction import SqlTransaction


async def find_duplicate(tx: SqlTransaction, entry: Entry) -> Published | None:
    if entry.dedup is None:
        return None
    seen = await tx.one("dedup_seen", queue_id=entry.keys_queue_id, key=entry.dedup.key, now=tx.now)
    if seen is None:
        return None
    id, digest = seen
    if digest != entry.dedup.digest:
        return Published(0, code=IdempotencyConflict.code)
    return Published(id, duplicate=True)


async def remember(tx: SqlTransaction, entry: Entry, id: int) -> None:
    if entry.name is not None:
        await tx.run("name_take", queue_id=entry.keys_queue_id, name=entry.name, id=id)
    if (dedup := entry.dedup) is not None:
        await tx.run(
            "dedup_remember",
            queue_id=entry.keys_queue_id,
            key=dedup.key,
            id=id,
            digest=dedup.digest,
            expires_at=compute_kept_until(dedup, tx.now),
        )


def compute_kept_until(dedup: Dedupe, now: Moment) -> Moment:
    return NEVER if dedup.window is None else now + int(dedup.window * 1_000_000)


async def record_seen(tx: SqlTransaction, item: Completion, queue_id: int) -> None:
    """Records the keys that the message has dealt with, in the transaction that completes it."""
    for key in item.seen:
        await tx.run(
            "dedup_remember",
            queue_id=queue_id,
            key=make_seen_key(key),
            id=item.id,
            digest=b"\0",
            expires_at=tx.now + int(SEEN_WINDOW_S * 1_000_000),
        )


async def find_seen(tx: SqlTransaction, queue_id: int, key: str) -> int | None:
    row = await tx.one("dedup_seen", queue_id=queue_id, key=make_seen_key(key), now=tx.now)
    return row[0] if row else None
