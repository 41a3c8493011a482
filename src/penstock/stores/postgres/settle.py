"""Ends deliveries as sets. What a set leaves out is looked at one by one."""

from collections.abc import Sequence
from typing import Any

from penstock.message import Flag
from penstock.stores.sql.settle import extended
from penstock.ticket import DONE, Answer, AnswerKind, Completion, Extension, Move

FOREVER = 2**62
KEYS = Flag.KEYED | Flag.UNIQUE


def completion(items: Sequence[Completion]) -> tuple[str, dict[str, Any]]:
    once = {(item.id, item.fence): item for item in reversed(items)}.values()
    values: dict[str, Any] = {
        "ids": [item.id for item in once],
        "fences": [item.fence for item in once],
    }
    results = [item.result for item in once]
    if results.count(None) == len(results):
        return "complete", values
    return "complete_with_results", values | {"results": results}


def extension(items: Sequence[Extension]) -> dict[str, Any]:
    return {
        "ids": [item.id for item in items],
        "fences": [item.fence for item in items],
        "lengths": [int(item.lease * 1_000_000) for item in items],
    }


def as_set(move: Move) -> bool:
    """It frees no key that the next one waits for."""
    return not (move.frees and move.seen_flags & KEYS)


def moving(moves: Sequence[Move]) -> dict[str, Any]:
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
    }


def done(items: Sequence[Completion], rows: list[Any]) -> list[Answer | None]:
    """DONE once a lock; None for those the set left out."""
    locks = {tuple(row) for row in rows}
    return [DONE if take(locks, (item.id, item.fence)) else None for item in items]


def moved(moves: Sequence[Move], rows: list[Any]) -> list[Answer | None]:
    ids = {row[0] for row in rows}
    return [Answer(AnswerKind.DONE, move.state) if take(ids, move.id) else None for move in moves]


def prolonged(items: Sequence[Extension], rows: list[Any]) -> list[Answer | None]:
    found = {(id, fence): extended(until, flags) for id, fence, until, flags in rows}
    return [found.get((item.id, item.fence)) for item in items]


def take(among: set[Any], one: Any) -> bool:
    if one not in among:
        return False
    among.remove(one)
    return True
