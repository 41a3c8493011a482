"""Builds the statements that settle deliveries as sets."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from penstock.model.store_types import Completion, Extension, Move
from penstock.stores.mariadb.statement import RawSql, fill_statement, locks_of, to_literal
from penstock.stores.mariadb.transaction import MariaTransaction
from penstock.stores.sql.settle import apply


def make_complete_statements(items: Sequence[Completion]) -> list[str]:
    """Returns the statements; the second yields the completed locks."""
    locks = locks_of(items)
    given = [item for item in items if item.result is not None]
    kept = [fill_statement("complete_results", given=make_results(given))] if given else []
    hold, leave = (
        fill_statement("hold_leases", locks=locks),
        fill_statement("complete_leave", locks=locks),
    )
    return [hold, fill_statement("complete", locks=locks), *kept, leave]


def make_results(items: Sequence[Completion]) -> RawSql:
    return RawSql(
        "\nUNION ALL\n".join(
            f"SELECT {item.id} AS id, {item.fence} AS fence, {to_literal(item.result)} AS body"
            for item in items
        )
    )


def make_extend_statements(items: Sequence[Extension]) -> list[str]:
    """Returns the statements; the last yields the new lease ends."""
    texts = [fill_statement("hold_leases", locks=locks_of(items))]
    for lease, run in groupby(sorted(items, key=lease_micros), lease_micros):
        texts.append(fill_statement("extend_many", length=lease, locks=locks_of(list(run))))
    return [*texts, fill_statement("extended", locks=locks_of(items))]


def lease_micros(item: Extension) -> int:
    return int(item.lease * 1_000_000)


async def settle_free(tx: MariaTransaction, moves: Sequence[Move]) -> list[Any]:
    """Makes the moves whose rows are not locked; returns those made."""
    rows = await tx.all("settle_look", ids=sorted(move.id for move in moves))
    held = {(row[2], row[9]): row for row in rows}
    made = [move for move in moves if is_unchanged(move, held.get((move.id, move.fence)))]
    if made:
        await tx.add(fill_statement("leave_leases", locks=locks_of(made)))
    for move in made:
        await apply(tx, move, held[move.id, move.fence][:13])
    return [(move.id,) for move in made]


def is_unchanged(move: Move, row: Any) -> bool:
    """True if the lease is as the rules saw it."""
    if row is None or row[7] != move.seen_flags:
        return False
    return move.expired_by is None or row[13] < move.expired_by
