"""Hands out messages: one packet picks and locks them, one moves and reads them."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from penstock.message import PLAIN, Leased
from penstock.stores.mariadb.statement import Raw, text_of
from penstock.stores.mariadb.transaction import leaving_ready
from penstock.stores.sql import upkeep
from penstock.stores.sql.rows import decode_meta
from penstock.stores.sql.transaction import Transaction
from penstock.ticket import Claim


def picking(claim: Claim) -> list[str]:
    if len(claim.queue_ids) == 1 and not claim.types:
        taking = text_of("claim_one", queue=claim.queue_ids[0], **terms(claim))
    else:
        taking = text_of("claim", picks=picks(claim), **terms(claim))
    return [
        text_of("number_claim", queues=claim.queue_ids),
        taking,
        text_of("expired_waits", queues=claim.queue_ids),
    ]


def picking_dead(claim: Claim) -> list[str]:
    types = {"any_type": not claim.types, "types": claim.types}
    lines = [
        text_of("pick_dead", queue=queue, limit=claim.limit, **types) for queue in claim.queue_ids
    ]
    return [
        text_of("number_dead", queues=claim.queue_ids),
        text_of("claim_dead", picks=together(lines), **terms(claim)),
    ]


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
        "own_length": Raw(text_of("own_length", length=int(claim.lease * 1_000_000))),
        "consumer": claim.consumer,
        "begins": claim.begins,
    }


def moving(rows: Sequence[Any]) -> list[str]:
    """Out of ready; what the messages are is read when nobody has to wait for us any more."""
    return [leaving_ready([tuple(row[:3]) for row in rows]), "COMMIT", reading(rows)]


def moving_dead(rows: Sequence[Any]) -> list[str]:
    ids = sorted(row[2] for row in rows)
    return [text_of("leave_dead", ids=ids), "COMMIT", reading(rows)]


def reading(rows: Sequence[Any]) -> str:
    return text_of("bodies", ids=sorted(row[2] for row in rows))


def leased(rows: Sequence[Any], messages: Sequence[Any]) -> list[Leased]:
    """In the order of their line."""
    found = {message[0]: message for message in messages}
    return [
        Leased(
            id, queue, type_, priority, created, body,
            PLAIN if meta is None else decode_meta(meta),
            fence, attempts, deliveries, until, flags,
        )
        for _, _, number, fence, attempts, deliveries, until, flags in sorted(
            rows, key=in_line
        )
        for id, queue, type_, priority, created, body, meta in [found[number]]
    ]  # fmt: skip


def in_line(row: Any) -> tuple[int, int]:
    return row[1], row[2]


async def clear(tx: Transaction, queues: Sequence[int], limit: int) -> int:
    """Ends what expired in line for these queues."""
    rows = await tx.all("expired_in_line", queues=list(queues), now=tx.now, limit=limit)
    return await upkeep.end_all(tx, rows)
