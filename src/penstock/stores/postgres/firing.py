"""Fires due schedules as a set and publishes their ticks together."""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.store_types import Dedupe, Entry, Firing
from penstock.stores.postgres.transaction import PostgresTransaction
from penstock.stores.sql.batches import take
from penstock.stores.sql.publish import kept_until, publish_checked


async def fire(tx: PostgresTransaction, firings: Sequence[Firing]) -> list[bool]:
    """Returns which schedules fired; skips those another transaction is firing."""
    rows = await tx.all(
        "schedules_move",
        ids=[firing.schedule_id for firing in firings],
        seen_ats=[firing.seen_at for firing in firings],
        next_ats=[firing.next_at for firing in firings],
    )
    moved = {tuple(row) for row in rows}
    fired = [take(moved, (firing.schedule_id, firing.seen_at)) for firing in firings]
    pairs = zip(firings, fired, strict=True)
    await publish_ticks(tx, [entry for firing, did in pairs if did for entry in firing.entries])
    return fired


async def publish_ticks(tx: PostgresTransaction, entries: Sequence[Entry]) -> None:
    """Publishes ticks that depend only on their dedup key as a set; the others one by one."""
    ticks: dict[tuple[int, str], tuple[Entry, Dedupe]] = {}
    for entry in entries:
        undecided = replace(entry, dedup=None)
        if entry.dedup is not None and undecided.plain:
            ticks.setdefault((entry.queue_id, entry.dedup.key), (undecided, entry.dedup))
        else:
            await publish_checked(tx, entry)
    for seen in await dedups_seen(tx, list(ticks)):
        del ticks[seen]
    if ticks:
        published = await tx.publish_plain([entry for entry, _ in ticks.values()])
        dedups = [dedup for _, dedup in ticks.values()]
        await remember(tx, list(ticks), [each.id for each in published], dedups)


async def dedups_seen(
    tx: PostgresTransaction, keys: Sequence[tuple[int, str]]
) -> list[tuple[int, str]]:
    rows = await tx.all(
        "dedups_seen",
        queue_ids=[queue_id for queue_id, _ in keys],
        keys=[key for _, key in keys],
        now=tx.now,
    )
    return [(queue_id, key) for queue_id, key in rows]


async def remember(
    tx: PostgresTransaction,
    keys: Sequence[tuple[int, str]],
    ids: Sequence[int],
    dedups: Sequence[Dedupe],
) -> None:
    await tx.run(
        "dedups_remember",
        queue_ids=[queue_id for queue_id, _ in keys],
        keys=[key for _, key in keys],
        ids=ids,
        digests=[dedup.digest for dedup in dedups],
        expires_ats=[kept_until(dedup, tx.now) for dedup in dedups],
    )
