"""Fires schedules of PostgreSQL and MariaDB as sets."""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.store_types import Dedupe, Entry, Firing
from penstock.stores.sql.publish import StoreTransaction, publish_checked


async def fire(tx: StoreTransaction, firings: Sequence[Firing]) -> list[bool]:
    """Returns which schedules fired; skips those another transaction is firing."""
    moved = dict.fromkeys(await tx.move_schedules(firings), True)
    fired = [moved.pop((firing.schedule_id, firing.seen_at), False) for firing in firings]
    pairs = zip(firings, fired, strict=True)
    await publish_ticks(tx, [entry for firing, did in pairs if did for entry in firing.entries])
    return fired


async def publish_ticks(tx: StoreTransaction, entries: Sequence[Entry]) -> None:
    """Publishes ticks that depend only on their dedup key as a set; the others one by one."""
    ticks: dict[tuple[int, str], tuple[Entry, Dedupe]] = {}
    for entry in entries:
        undecided = replace(entry, dedup=None)
        if entry.dedup is not None and undecided.plain:
            ticks.setdefault((entry.queue_id, entry.dedup.key), (undecided, entry.dedup))
        else:
            await publish_checked(tx, entry)
    for seen in await tx.dedups_seen(list(ticks)) if ticks else ():
        del ticks[seen]
    if ticks:
        published = await tx.publish_plain([entry for entry, _ in ticks.values()])
        dedups = [dedup for _, dedup in ticks.values()]
        await tx.remember_dedups(list(ticks), [each.id for each in published], dedups)
