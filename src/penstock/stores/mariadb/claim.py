"""Builds the claim statements: one packet picks, moves and reads the messages."""

from collections.abc import Sequence
from itertools import product
from operator import itemgetter
from typing import Any

from penstock.model.message import PLAIN, Flag, Leased
from penstock.model.store_types import Claim
from penstock.stores.mariadb.statement import RawSql, fill_statement
from penstock.stores.sql import upkeep
from penstock.stores.sql.records import decode_meta_json
from penstock.stores.sql.transaction import SqlTransaction

RANK, DEAD_AT = 12, 13
NOTHING_EXPIRES = "SELECT 1 FROM DUAL WHERE FALSE"


def make_claim_statement(claim: Claim, clock: str, moment: RawSql) -> str:
    return make_take_statement(
        clock,
        fill_statement("number_claim", queues=claim.queue_ids),
        fill_statement("claim", picks=make_picks(claim), moment=moment, **make_terms(claim)),
        "claim_leave_ready",
        fill_statement("expired_waits", queues=claim.queue_ids),
        lease_micros(claim),
    )


def make_dead_claim_statement(claim: Claim, clock: str, moment: RawSql) -> str:
    types = {"any_type": not claim.types, "types": claim.types}
    lines = [
        fill_statement("pick_dead", queue=queue, limit=claim.limit, **types)
        for queue in claim.queue_ids
    ]
    return make_take_statement(
        clock,
        fill_statement("number_dead", queues=claim.queue_ids),
        fill_statement("claim_dead", picks=union_all(lines), moment=moment, **make_terms(claim)),
        "claim_leave_dead",
        NOTHING_EXPIRES,
        lease_micros(claim),
    )


def make_take_statement(
    clock: str, number: str, claim: str, leave: str, expired: str, length: int
) -> str:
    """Returns the claimed rows and whether expired messages are in line."""
    texts = {
        "clock": clock,
        "number": number,
        "claim": claim,
        "expired": expired,
        "leave": fill_statement(leave, length=length),
        "claimed": fill_statement("claimed", length=length),
        "own_lengths": fill_statement("own_lengths", length=length),
    }
    return fill_statement(
        "take", length=length, **{name: RawSql(text) for name, text in texts.items()}
    )


def make_picks(claim: Claim) -> RawSql:
    """Selects the first tickets of each queue or type that the claim names."""
    limit, types = claim.limit, tuple(dict.fromkeys(claim.types))
    if not types:
        lines = [fill_statement("pick", queue=queue, limit=limit) for queue in claim.queue_ids]
    else:
        lines = [
            fill_statement("pick_type", queue=queue, type=type_, limit=limit)
            for queue, type_ in product(claim.queue_ids, types)
        ]
    return union_all(lines)


def union_all(lines: Sequence[str]) -> RawSql:
    if len(lines) == 1:
        return RawSql(lines[0])
    return RawSql("\nUNION ALL\n".join(f"({line})" for line in lines))


def make_terms(claim: Claim) -> dict[str, Any]:
    return {
        "limit": claim.limit,
        "length": lease_micros(claim),
        "consumer": claim.consumer,
        "begins": claim.begins,
    }


def lease_micros(claim: Claim) -> int:
    return int(claim.lease * 1_000_000)


def make_leased(rows: list[Any], length: int, order: int = RANK) -> list[Leased]:
    """Sorts the rows by rank; the server returns them by id."""
    rows.sort(key=itemgetter(order))
    return [
        Leased(
            id,
            queue,
            type_,
            priority,
            created,
            body,
            PLAIN if meta is None else decode_meta_json(meta),
            fence,
            attempts,
            deliveries,
            until if not flags & Flag.OWN_LEASE else until - length + message_lease_micros(meta),
            flags,
        )
        for (
            id,
            queue,
            type_,
            priority,
            created,
            body,
            meta,
            fence,
            attempts,
            deliveries,
            until,
            flags,
            _,
            _,
        ) in rows
    ]


def message_lease_micros(meta: str) -> int:
    return round((decode_meta_json(meta).lease or 0) * 1_000_000)


async def clear(tx: SqlTransaction, queues: Sequence[int], limit: int) -> int:
    """Ends expired messages of these queues."""
    rows = await tx.all("expired_in_line", queues=list(queues), now=tx.now, limit=limit)
    return await upkeep.end_all(tx, rows)
