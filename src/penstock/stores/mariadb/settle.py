"""Ends deliveries as sets. What a set leaves out is looked at one by one."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from penstock.stores.mariadb.statement import Raw, literal, locks_of, text_of
from penstock.stores.mariadb.transaction import Transaction
from penstock.stores.sql.settle import apply
from penstock.ticket import Completion, Extension, Move


def completing(items: Sequence[Completion]) -> list[str]:
    """The statements; the second one tells which they are."""
    locks = locks_of(items)
    given = [item for item in items if item.result is not None]
    kept = [text_of("complete_results", given=results(given))] if given else []
    hold, leave = text_of("hold_leases", locks=locks), text_of("complete_leave", locks=locks)
    return [hold, text_of("complete", locks=locks), *kept, leave]


def results(items: Sequence[Completion]) -> Raw:
    return Raw(
        "\nUNION ALL\n".join(
            f"SELECT {item.id} AS id, {item.fence} AS fence, {literal(item.result)} AS body"
            for item in items
        )
    )


def extending(items: Sequence[Extension]) -> list[str]:
    """The statements; the last one tells until when."""
    texts = [text_of("hold_leases", locks=locks_of(items))]
    for lease, run in groupby(sorted(items, key=length_of), length_of):
        texts.append(text_of("extend_many", length=lease, locks=locks_of(list(run))))
    return [*texts, text_of("extended", locks=locks_of(items))]


def length_of(item: Extension) -> int:
    return int(item.lease * 1_000_000)


async def settle_free(tx: Transaction, moves: Sequence[Move]) -> list[Any]:
    """Which of the moves were made, of those that nobody's open transaction is in the way of."""
    rows = await tx.all("settle_look", ids=sorted(move.id for move in moves))
    held = {(row[2], row[9]): row for row in rows}
    made = [move for move in moves if fits(move, held.get((move.id, move.fence)))]
    if made:
        await tx.add(text_of("leave_leases", locks=locks_of(made)))
    for move in made:
        await apply(tx, move, held[move.id, move.fence][:13])
    return [(move.id,) for move in made]


def fits(move: Move, row: Any) -> bool:
    """It is as the rule saw it."""
    if row is None or row[7] != move.seen_flags:
        return False
    return move.expired_by is None or row[13] < move.expired_by
