"""Hands out messages: from the head of a queue, by type, over several queues, from the dead."""

import json
from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from penstock.message import PLAIN, Flag, Leased, Moment, State, Verb
from penstock.stores.sqlite import keys
from penstock.stores.sqlite.rows import decode_meta
from penstock.stores.sqlite.transaction import Ticket, Transaction
from penstock.ticket import Claim, Claimed

NOTHING = Claimed([])


def claim(tx: Transaction, claim: Claim) -> Claimed:
    if len(claim.queue_ids) == 1 and not claim.types:
        return claim_head(tx, claim, claim.queue_ids[0])
    return claim_picked(tx, claim)


def claim_head(tx: Transaction, claim: Claim, queue_id: int) -> Claimed:
    """The first messages in line, as sets: SQLite steps over each row once, not Python."""
    if tx.one("peek", (queue_id,)) is None:
        return NOTHING
    terms = lease_terms(tx, claim) | {"queue": queue_id, "limit": claim.limit}
    count = tx.run("claim_lease", terms).rowcount
    expired = take_expired(tx, queue_id, claim.limit) if count < claim.limit else []
    rows = tx.all("claim_read", (queue_id, count)) if count else []
    if rows:
        tx.run("claim_remove", (queue_id, rows[-1][-1], rows[-1][0]))
    # Only now: what ends may free a key, and its next one enters this very line.
    for ticket in expired:
        end(tx, ticket, Verb.EXPIRE, State.EXPIRED)
    return Claimed(leased(tx, rows, terms), again=bool(expired) and not rows)


def take_expired(tx: Transaction, queue_id: int, limit: int) -> list[Ticket]:
    """The expired ones among the first in line, out of it."""
    found = {"queue": queue_id, "limit": limit, "now": tx.now}
    tickets = [Ticket(*row) for row in tx.all("claim_expired", found)]
    for ticket in tickets:
        tx.one("take_ready", ticket[:3])
    return tickets


def claim_picked(tx: Transaction, claim: Claim) -> Claimed:
    """By type, or over several queues as one line: each is asked for its first, then merged."""
    picks = list(islice(merge(*asked(tx, claim, "pick", "pick_type")), claim.limit))
    taken = [Ticket(*tx.one("ready", (queue_id, rank, id))) for rank, id, queue_id in picks]
    alive = [ticket for ticket in taken if ticket.expires_at > tx.now]
    terms = lease_terms(tx, claim) if alive else {}
    for ticket in alive:
        tx.run(
            "claim_pick", terms | {"rank": ticket.rank, "id": ticket.id, "queue": ticket.queue_id}
        )
    for ticket in taken:
        tx.one("take_ready", ticket[:3])
    for ticket in taken:
        if ticket.expires_at <= tx.now:
            end(tx, ticket, Verb.EXPIRE, State.EXPIRED)
    if not alive:
        return Claimed([], again=bool(taken))
    rows = tx.all("claimed_read", (json.dumps([ticket.id for ticket in alive]),))
    return Claimed(leased(tx, rows, terms))


def asked(tx: Transaction, claim: Claim, any_type: str, by_type: str) -> list[list[Any]]:
    """The first of each queue, or of each type in it; every list in order."""
    if not claim.types:
        return [tx.all(any_type, (queue_id, claim.limit)) for queue_id in claim.queue_ids]
    return [
        tx.all(by_type, (queue_id, type_, claim.limit))
        for queue_id in claim.queue_ids
        for type_ in dict.fromkeys(claim.types)
    ]


def claim_dead(tx: Transaction, claim: Claim) -> Claimed:
    """The longest dead first, over all the queues. Deliveries are not counted."""
    picks = list(islice(merge(*asked(tx, claim, "pick_dead", "pick_dead_type")), claim.limit))
    if not picks:
        return NOTHING
    terms = lease_terms(tx, claim)
    for _, id in picks:
        tx.run("claim_dead", terms | {"id": id})
        tx.one("take_dead", (id,))
    rows = tx.all("claimed_read", (json.dumps([id for _, id in picks]),))
    return Claimed(leased(tx, rows, terms))


def lease_terms(tx: Transaction, claim: Claim) -> dict[str, Any]:
    return {
        "fence": tx.next_number("fence"),
        "consumer": claim.consumer,
        "begins": claim.begins,
        "now": tx.now,
        "until": tx.now + int(claim.lease * 1_000_000),
    }


def leased(tx: Transaction, rows: list[Any], terms: dict[str, Any]) -> list[Leased]:
    fence, until = terms["fence"], terms["until"]
    messages = [
        Leased(
            id, queue, type_, priority, created, body,
            PLAIN if meta is None else decode_meta(meta),
            fence, attempts, deliveries, until, flags,
        )
        for id, queue, type_, priority, created, body, meta, attempts, deliveries, flags, _ in rows
    ]  # fmt: skip
    return [
        with_own_lease(tx, message) if message.flags & Flag.OWN_LEASE else message
        for message in messages
    ]


def with_own_lease(tx: Transaction, message: Leased) -> Leased:
    until: Moment = tx.now + int((message.meta.lease or 0) * 1_000_000)
    tx.run("own_lease", {"until": until, "id": message.id, "fence": message.fence})
    return msgspec.structs.replace(message, lease_until=until)


def end(
    tx: Transaction, ticket: Ticket, verb: Verb, state: State, reason: str | None = None
) -> None:
    """A ticket that nobody holds is over."""
    tx.record(ticket, verb, state, reason)
    keys.free(tx, ticket.id, ticket.flags)
