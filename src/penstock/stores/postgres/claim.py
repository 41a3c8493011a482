"""Hands out messages."""

from typing import Any

from penstock.message import PLAIN, Leased
from penstock.stores.sql.rows import decode_meta
from penstock.ticket import Claim


def pick(claim: Claim) -> str:
    if claim.types:
        return "pick_types"
    return "pick_one" if len(claim.queue_ids) == 1 else "pick_line"


def terms(claim: Claim) -> dict[str, Any]:
    return {
        "queues": claim.queue_ids,
        "types": tuple(dict.fromkeys(claim.types)),
        "limit": claim.limit,
        "length": int(claim.lease * 1_000_000),
        "consumer": claim.consumer,
        "begins": claim.begins,
    }


def leased(rows: list[Any]) -> list[Leased]:
    return [
        Leased(
            id, queue, type_, priority, created, body,
            PLAIN if meta is None else decode_meta(meta),
            fence, attempts, deliveries, until, flags,
        )
        for (
            id, queue, type_, priority, created, body, meta, fence, attempts, deliveries, until,
            flags, _,
        ) in rows
    ]  # fmt: skip
