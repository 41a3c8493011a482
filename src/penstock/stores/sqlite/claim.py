"""Claims messages: from one queue, by type, from several queues, from the dead letters."""

from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from penstock.model.message import PLAIN, Flag, Leased, Moment, State, Verb
from penstock.model.store_types import Claim, Claimed
from penstock.stores.sql.records import decode_meta_json
from penstock.stores.sql.settle import end
from penstock.stores.sql.transaction import Ticket
from penstock.stores.sqlite.transaction import SqliteTransaction

NO_CLAIM = Claimed([])


async def claim(tx: SqliteTransaction, claim: Claim) -> Claimed:
    if len(claim.queue_ids) == 1 and not claim.types:
        return await claim_head(tx, claim, claim.queue_ids[0])
    return await claim_picked(tx, claim)


async def claim_head(tx: SqliteTransaction, claim: Claim, queue_id: int) -> Claimed:
    """Claims the first messages of a queue with set statements."""
    if await tx.one("peek", queue_id=queue_id) is None:
        return NO_CLAIM
    terms = await make_lease_terms(tx, claim) | {"queue": queue_id, "limit": claim.limit}
    count = tx.execute("claim_lease", terms).rowcount
    expired = await take_expired(tx, queue_id, claim.limit) if count < claim.limit else []
    rows = tx.execute("claim_read", (queue_id, count)).fetchall() if count else []
    if rows:
        tx.execute("claim_remove", (queue_id, rows[-1][-1], rows[-1][0]))
    # After the claim: ending one may free a key and make another message of this queue ready.
    for ticket in expired:
        await end(tx, ticket, Verb.EXPIRE, State.EXPIRED)
    return Claimed(await make_leased(tx, rows, terms), again=bool(expired) and not rows)


async def take_expired(tx: SqliteTransaction, queue_id: int, limit: int) -> list[Ticket]:
    """Removes and returns the expired tickets among the first in line."""
    rows = await tx.all("claim_expired", queue=queue_id, limit=limit, now=tx.now)
    tickets = [Ticket(*row) for row in rows]
    for ticket in tickets:
        await take_ready(tx, ticket)
    return tickets


async def take_ready(tx: SqliteTransaction, ticket: Ticket) -> None:
    await tx.one("take_ready", queue_id=ticket.queue_id, rank=ticket.rank, id=ticket.id)


async def claim_picked(tx: SqliteTransaction, claim: Claim) -> Claimed:
    """Claims by type or from several queues: merges the first tickets of each by rank."""
    picks = list(islice(merge(*await pick_each(tx, claim, "pick", "pick_type")), claim.limit))
    taken = [
        Ticket(*await tx.one("ready", queue_id=queue_id, rank=rank, id=id))
        for rank, id, queue_id in picks
    ]
    alive = [ticket for ticket in taken if ticket.expires_at > tx.now]
    terms = await make_lease_terms(tx, claim) if alive else {}
    for ticket in alive:
        place = {"rank": ticket.rank, "id": ticket.id, "queue": ticket.queue_id}
        tx.execute("claim_pick", terms | place)
    for ticket in taken:
        await take_ready(tx, ticket)
    for ticket in taken:
        if ticket.expires_at <= tx.now:
            await end(tx, ticket, Verb.EXPIRE, State.EXPIRED)
    if not alive:
        return Claimed([], again=bool(taken))
    rows = await tx.all("claimed_read", ids=tx.encode_ids([ticket.id for ticket in alive]))
    return Claimed(await make_leased(tx, rows, terms))


async def pick_each(
    tx: SqliteTransaction, claim: Claim, any_type: str, by_type: str
) -> list[list[Any]]:
    """Returns the first tickets of each queue, or of each type in it, in order."""
    if not claim.types:
        return [
            await tx.all(any_type, queue_id=queue_id, limit=claim.limit)
            for queue_id in claim.queue_ids
        ]
    return [
        await tx.all(by_type, queue_id=queue_id, type=type_, limit=claim.limit)
        for queue_id in claim.queue_ids
        for type_ in dict.fromkeys(claim.types)
    ]


async def claim_dead(tx: SqliteTransaction, claim: Claim) -> Claimed:
    """Claims dead letters of all the queues, oldest first. Deliveries are not counted."""
    picks = list(
        islice(merge(*await pick_each(tx, claim, "pick_dead", "pick_dead_type")), claim.limit)
    )
    if not picks:
        return NO_CLAIM
    terms = await make_lease_terms(tx, claim)
    for _, id in picks:
        tx.execute("claim_dead", terms | {"id": id})
        await tx.one("take_dead", id=id)
    rows = await tx.all("claimed_read", ids=tx.encode_ids([id for _, id in picks]))
    return Claimed(await make_leased(tx, rows, terms))


async def make_lease_terms(tx: SqliteTransaction, claim: Claim) -> dict[str, Any]:
    return {
        "fence": await tx.next_number("fence"),
        "consumer": claim.consumer,
        "begins": claim.begins,
        "now": tx.now,
        "until": tx.now + int(claim.lease * 1_000_000),
    }


async def make_leased(
    tx: SqliteTransaction, rows: list[Any], terms: dict[str, Any]
) -> list[Leased]:
    fence, until = terms["fence"], terms["until"]
    messages = [
        Leased(
            id, queue, type_, priority, created, body,
            PLAIN if meta is None else decode_meta_json(meta),
            fence, attempts, deliveries, until, flags,
        )
        for id, queue, type_, priority, created, body, meta, attempts, deliveries, flags, _ in rows
    ]  # fmt: skip
    for number, message in enumerate(messages):
        if message.flags & Flag.OWN_LEASE:
            messages[number] = await apply_own_lease(tx, message)
    return messages


async def apply_own_lease(tx: SqliteTransaction, message: Leased) -> Leased:
    until: Moment = tx.now + int((message.meta.lease or 0) * 1_000_000)
    await tx.run("own_lease", until=until, id=message.id, fence=message.fence)
    return msgspec.structs.replace(message, lease_until=until)
