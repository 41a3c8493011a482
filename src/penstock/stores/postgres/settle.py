"""Builds the values of the statements that settle deliveries as sets."""

from collections.abc import Sequence
from typing import Any

from penstock.model.store_types import Completion, Extension, Lock, Move

FOREVER = 2**62


def make_completion(items: Sequence[Completion]) -> tuple[str, dict[str, Any]]:
    once = {(item.id, item.fence): item for item in reversed(items)}.values()
    values: dict[str, Any] = {
        "ids": [item.id for item in once],
        "fences": [item.fence for item in once],
    }
    results = [item.result for item in once]
    if results.count(None) == len(results):
        return "complete", values
    return "complete_with_results", values | {"results": results}


def locks_of(items: Sequence[Completion | Extension | Lock]) -> dict[str, list[int]]:
    return {"ids": [item.id for item in items], "fences": [item.fence for item in items]}


def make_extension(items: Sequence[Extension]) -> dict[str, Any]:
    return {
        "ids": [item.id for item in items],
        "fences": [item.fence for item in items],
        "lengths": [int(item.lease * 1_000_000) for item in items],
    }


def make_moves(moves: Sequence[Move]) -> dict[str, Any]:
    return {
        "ids": [move.id for move in moves],
        "fences": [move.fence for move in moves],
        "flags": [move.seen_flags for move in moves],
        "expired_bys": [FOREVER if move.expired_by is None else move.expired_by for move in moves],
        "verbs": [move.verb.value for move in moves],
        "states": [move.state.value for move in moves],
        "attempts": [move.attempts for move in moves],
        "deliveries": [move.deliveries for move in moves],
        "reasons": [move.reason for move in moves],
        "errors": [move.error for move in moves],
        "delays": [int(move.delay * 1_000_000) for move in moves],
        "ranked": [move.rank_by_due for move in moves],
        "tracebacks": [move.traceback for move in moves],
    }
