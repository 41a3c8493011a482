"""Runs a batch as one set statement and maps the rows to answers."""

from collections.abc import Sequence
from typing import Any

from penstock.model.message import Flag
from penstock.model.store_types import DONE, Answer, AnswerKind, Completion, Extension, Move
from penstock.stores.sql.settle import answer_extended


def run_as_set(move: Move) -> bool:
    """True if the move frees no key and notifies no one, so that it can run in a set."""
    return not (move.frees and move.seen_flags & Flag.ENDING)


def answer_done(items: Sequence[Completion], rows: list[Any]) -> list[Answer | None]:
    """Answers DONE once per lock; None for items the set left out."""
    locks = {tuple(row) for row in rows}
    return [DONE if take(locks, (item.id, item.fence)) else None for item in items]


def answer_moved(moves: Sequence[Move], rows: list[Any]) -> list[Answer | None]:
    ids = {row[0] for row in rows}
    return [Answer(AnswerKind.DONE, move.state) if take(ids, move.id) else None for move in moves]


def answer_extensions(items: Sequence[Extension], rows: list[Any]) -> list[Answer | None]:
    found = {(id, fence): answer_extended(until, flags) for id, fence, until, flags in rows}
    return [found.get((item.id, item.fence)) for item in items]


def take(among: set[Any], one: Any) -> bool:
    if one not in among:
        return False
    among.remove(one)
    return True
