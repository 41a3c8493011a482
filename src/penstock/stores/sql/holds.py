"""Writes the holds of messages: what each of them waits for."""

from collections.abc import Sequence

from penstock.model.message import NEVER, After, Moment
from penstock.model.store_types import Entry, Published
from penstock.model.waiting import Hold, StoredHold
from penstock.stores.sql.transaction import SqlTransaction

# The number of holds that were published with their message.
PUBLISHED = 0


def make_holds(held_id: int, number: int, holds: Sequence[Hold], now: Moment) -> list[StoredHold]:
    return [make_hold_row(held_id, place, number, hold, now) for place, hold in enumerate(holds)]


def make_hold_row(held_id: int, place: int, number: int, hold: Hold, now: Moment) -> StoredHold:
    due_at = NEVER if hold.due_at is None else hold.due_at
    if hold.delay is not None:
        due_at = now + int(hold.delay * 1_000_000)
    after = hold.after or After()
    return StoredHold(
        held_id, place, number, due_at, hold.kind, hold.name, after.policy, after.need,
        after.on_dead,
    )  # fmt: skip


async def put_holds(tx: SqlTransaction, holds: Sequence[StoredHold]) -> None:
    await tx.run_many("hold_add", [hold._asdict() for hold in holds])


def list_awaited(after: After, published: Sequence[int]) -> list[int]:
    return list(dict.fromkeys([*(published[place] for place in after.entries), *after.ids]))


async def hold_published(
    tx: SqlTransaction, entries: Sequence[Entry], outcomes: Sequence[Published]
) -> None:
    """Writes the holds of entries that wait for others before their first delivery."""
    ids = [outcome.id for outcome in outcomes]
    holds: list[StoredHold] = []
    edges: list[dict[str, int]] = []
    nudged: list[dict[str, int]] = []
    flagged: set[int] = set()
    for entry, outcome in zip(entries, outcomes, strict=True):
        if entry.after is None or outcome.duplicate or await is_dead(tx, entry, outcome.id):
            continue
        holds += make_holds(outcome.id, PUBLISHED, make_entry_holds(entry), tx.now)
        awaited = list_awaited(entry.after, ids)
        edges += [
            {"held_id": outcome.id, "number": PUBLISHED, "awaited_id": each} for each in awaited
        ]
        stored = list_stored(entry.after, outcomes)
        flagged.update(stored)
        if not awaited or stored:
            nudged.append({"held_id": outcome.id})
    await flag_awaited(tx, sorted(flagged))
    await put_holds(tx, holds)
    await tx.add_edges(edges)
    await tx.run_many("nudge_add", nudged)


async def is_dead(tx: SqlTransaction, entry: Entry, id: int) -> bool:
    """True if its queue was full, so that it is among the dead letters and waits for nothing."""
    if entry.max_depth is None or entry.overflow != "dead":
        return False
    return not await tx.all("held_among", ids=tx.encode_ids([id]))


def list_stored(after: After, outcomes: Sequence[Published]) -> list[int]:
    """Lists the awaited messages that were stored before: by id, or as duplicates."""
    duplicates = [outcomes[place].id for place in after.entries if outcomes[place].duplicate]
    return sorted({*duplicates, *after.ids})


async def flag_awaited(tx: SqlTransaction, ids: Sequence[int]) -> None:
    """Announces the ends of stored messages to those that wait for them, and keeps results."""
    if ids:
        for place in ("ready", "scheduled", "lease", "dead"):
            await tx.run(f"flag_awaited_{place}", ids=tx.encode_ids(ids))
        await tx.run("keep_nothing", ids=tx.encode_ids(ids), now=tx.now)


def make_entry_holds(entry: Entry) -> list[Hold]:
    holds = [Hold(kind="after", after=entry.after)]
    if entry.run_at is not None:
        holds.append(Hold(kind="moment", due_at=entry.run_at))
    elif entry.delay:
        holds.append(Hold(kind="moment", delay=entry.delay))
    return holds
