"""Hands out messages: one statement picks, moves and reads them."""

from collections.abc import Sequence
from itertools import product
from operator import itemgetter
from typing import Any

from penstock.message import PLAIN, Flag, Leased
from penstock.stores.mariadb.statement import Raw, text_of
from penstock.stores.sql import upkeep
from penstock.stores.sql.rows import decode_meta
from penstock.stores.sql.transaction import Transaction
from penstock.ticket import Claim

RANK, DEAD_AT = 12, 13
NOTHING_EXPIRES = "SELECT 1 FROM DUAL WHERE FALSE"


def claiming(claim: Claim, clock: str, moment: Raw) -> str:
    return taking(
        clock,
        text_of("number_claim", queues=claim.queue_ids),
        text_of("claim", picks=picks(claim), moment=moment, **terms(claim)),
        "claim_leave_ready",
        text_of("expired_waits", queues=claim.queue_ids),
        length_of(claim),
    )


def claiming_dead(claim: Claim, clock: str, moment: Raw) -> str:
    types = {"any_type": not claim.types, "types": claim.types}
    lines = [
        text_of("pick_dead", queue=queue, limit=claim.limit, **types) for queue in claim.queue_ids
    ]
    return taking(
        clock,
        text_of("number_dead", queues=claim.queue_ids),
        text_of("claim_dead", picks=together(lines), moment=moment, **terms(claim)),
        "claim_leave_dead",
        NOTHING_EXPIRES,
        length_of(claim),
    )


def taking(clock: str, number: str, claim: str, leave: str, expired: str, length: int) -> str:
    """It answers with what was claimed, if anything was, and with whether something expired."""
    texts = {
        "clock": clock,
        "number": number,
        "claim": claim,
        "expired": expired,
        "leave": text_of(leave, length=length),
        "claimed": text_of("claimed", length=length),
        "own_lengths": text_of("own_lengths", length=length),
    }
    return text_of("take", length=length, **{name: Raw(text) for name, text in texts.items()})


def picks(claim: Claim) -> Raw:
    """The first of each line that the claim names."""
    limit, types = claim.limit, tuple(dict.fromkeys(claim.types))
    if not types:
        lines = [text_of("pick", queue=queue, limit=limit) for queue in claim.queue_ids]
    else:
        lines = [
            text_of("pick_type", queue=queue, type=type_, limit=limit)
            for queue, type_ in product(claim.queue_ids, types)
        ]
    return together(lines)


def together(lines: Sequence[str]) -> Raw:
    if len(lines) == 1:
        return Raw(lines[0])
    return Raw("\nUNION ALL\n".join(f"({line})" for line in lines))


def terms(claim: Claim) -> dict[str, Any]:
    return {
        "limit": claim.limit,
        "length": length_of(claim),
        "consumer": claim.consumer,
        "begins": claim.begins,
    }


def length_of(claim: Claim) -> int:
    return int(claim.lease * 1_000_000)


def leased(rows: list[Any], length: int, order: int = RANK) -> list[Leased]:
    """In the order of their line; they come in that of their ids."""
    rows.sort(key=itemgetter(order))
    return [
        Leased(
            id, queue, type_, priority, created, body,
            PLAIN if meta is None else decode_meta(meta), fence, attempts, deliveries,
            until if not flags & Flag.OWN_LEASE else until - length + own_length(meta), flags,
        )
        for (
            id, queue, type_, priority, created, body, meta, fence, attempts, deliveries, until,
            flags, _, _,
        ) in rows
    ]  # fmt: skip


def own_length(meta: str) -> int:
    return round((decode_meta(meta).lease or 0) * 1_000_000)


async def clear(tx: Transaction, queues: Sequence[int], limit: int) -> int:
    """Ends what expired in line for these queues."""
    rows = await tx.all("expired_in_line", queues=list(queues), now=tx.now, limit=limit)
    return await upkeep.end_all(tx, rows)
