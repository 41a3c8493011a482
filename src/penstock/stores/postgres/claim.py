"""Builds the claim statements' values and results."""

from collections.abc import Sequence
from typing import Any

from penstock.model.message import PLAIN, Leased
from penstock.model.store_types import Claim
from penstock.stores.postgres.claim_cursor import CursorPosition
from penstock.stores.sql import upkeep
from penstock.stores.sql.rows import decode_meta_json
from penstock.stores.sql.transaction import SqlTransaction


def pick(claim: Claim) -> str:
    if claim.types:
        return "pick_types"
    return "pick_one" if len(claim.queue_ids) == 1 else "pick_line"


def make_terms(claim: Claim) -> dict[str, Any]:
    return {
        "queues": claim.queue_ids,
        "types": tuple(dict.fromkeys(claim.types)),
        "limit": claim.limit,
        "length": int(claim.lease * 1_000_000),
        "consumer": claim.consumer,
        "begins": claim.begins,
    }


def find_last_position(rows: list[Any]) -> CursorPosition | None:
    """Returns the position of the last claimed message; a row behind it may mark expired ones."""
    for row in reversed(rows):
        if row[0] is not None:
            return CursorPosition(row[-1], row[0])
    return None


def make_leased(rows: list[Any]) -> list[Leased]:
    return [
        Leased(
            id, queue, type_, priority, created, body,
            PLAIN if meta is None else decode_meta_json(meta),
            fence, attempts, deliveries, until, flags,
        )
        for (
            id, queue, type_, priority, created, body, meta, fence, attempts, deliveries, until,
            flags, _,
        ) in rows
    ]  # fmt: skip


async def clear(tx: SqlTransaction, queues: Sequence[int], limit: int) -> int:
    """Ends expired messages of these queues."""
    rows = await tx.all("expired_in_line", queues=list(queues), now=tx.now, limit=limit)
    return await upkeep.end_all(tx, rows)
