"""Writes entries: one statement for those that need no look at what is stored."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from penstock.errors import Busy
from penstock.stores.postgres import transaction
from penstock.stores.postgres.transaction import lock_name
from penstock.stores.sql.publish import (
    alike,
    lockables,
    none_of,
    publish_checked,
    refused,
)
from penstock.stores.sql.transaction import Transaction
from penstock.ticket import Entry, Published

BUSY = Published(0, code=Busy.code)
# Of one message only.
ALONE = ("dedup", "name")
ID = itemgetter(0)
USUALLY = attrgetter("basis", "delay", "run_at", "ttl", "expires_at")
USUAL = ("zero", 0.0, None, None, None)


def micros(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1_000_000)


def call(entries: Sequence[Entry]) -> tuple[str, dict[str, Any]]:
    """The statement that writes these plain entries best, and its values."""
    first = entries[0]
    if not all(map(usual, entries)):
        return "publish_mixed", various(entries) | timed(entries)
    if not alike(entries):
        return "publish_various", various(entries)
    heading = {
        "queue_id": first.queue_id,
        "type": first.type,
        "priority": first.priority,
        "rank": first.rank,
        "meta": first.meta,
    }
    if len(entries) == 1:
        return "publish_one", heading | {"body": first.body}
    return "publish_alike", heading | {"bodies": [entry.body for entry in entries]}


def usual(entry: Entry) -> bool:
    """For now and for good, at a rank that does not depend on when it is published."""
    return USUALLY(entry) == USUAL


def various(entries: Sequence[Entry]) -> dict[str, Any]:
    return {
        "queue_ids": [entry.queue_id for entry in entries],
        "types": [entry.type for entry in entries],
        "priorities": [entry.priority for entry in entries],
        "ranks": [entry.rank for entry in entries],
        "bodies": [entry.body for entry in entries],
        "metas": [entry.meta for entry in entries],
    }


def timed(entries: Sequence[Entry]) -> dict[str, Any]:
    """What only those have that are not for now and for good."""
    return {
        "bases": [entry.basis for entry in entries],
        "delays": [micros(entry.delay) for entry in entries],
        "run_ats": [entry.run_at for entry in entries],
        "ttls": [micros(entry.ttl) for entry in entries],
        "expires_ats": [entry.expires_at for entry in entries],
    }


def published(rows: Iterable[Any]) -> list[Published]:
    """Numbers are taken in the order of the entries."""
    return list(map(Published, sorted(map(ID, rows))))


async def publish_plain(tx: Transaction, entries: Sequence[Entry]) -> list[Published]:
    name, values = call(entries)
    tx.woken.update(entry.queue_id for entry in entries)
    return published(await tx.all(name, **values))


async def publish_all(tx: Transaction, entries: Sequence[Entry]) -> list[Published]:
    """One step. What somebody else is about to decide is BUSY, and holds up nobody here."""
    kept = await free_ones(tx, entries)
    outcomes = [BUSY] * len(entries)
    for plain, run in groupby(kept, lambda place: entries[place].plain):
        places = list(run)
        asked = [entries[place] for place in places]
        written = await publish_plain(tx, asked) if plain else await publish_each(tx, asked)
        for place, outcome in zip(places, written, strict=True):
            outcomes[place] = outcome
    return outcomes


async def publish_each(tx: Transaction, entries: Sequence[Entry]) -> list[Published]:
    return [await publish_checked(tx, entry) for entry in entries]


async def free_ones(tx: Transaction, entries: Sequence[Entry]) -> list[int]:
    """The places of those whose locks are ours now."""
    asked = [
        (place, what)
        for place, entry in enumerate(entries)
        for what in lockables(entry)
        # A caller may keep its transaction open for long: what others need is not kept from them.
        if not tx.foreign or what[0] in ALONE
    ]
    rows = await tx.all("try_lock", all=[lock_name(what) for _, what in asked]) if asked else []
    taken = {place for (place, _), (free,) in zip(asked, rows, strict=True) if not free}
    return [place for place in range(len(entries)) if place not in taken]


async def publish_atomic(tx: transaction.Transaction, entries: Sequence[Entry]) -> list[Published]:
    await tx.lock(*sorted({what for entry in entries for what in lockables(entry)}))
    await tx.connection.execute("SAVEPOINT atomic")
    outcomes = await publish_all(tx, entries)
    if refused(outcomes):
        await tx.connection.execute("ROLLBACK TO atomic")
        outcomes = none_of(outcomes)
        tx.woken.clear()
    return outcomes
