"""Dumps and restores what messages wait for: holds, edges, steps and signals."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, TypeVar

from penstock.model.copies import StoredResult, StoredWaits
from penstock.model.message import State
from penstock.model.waiting import Edge, StoredHold
from penstock.stores.sql.steps import make_signals, make_step
from penstock.stores.sql.transaction import SqlTransaction

COLUMNS = {
    "hold": (
        "held_id", "place", "number", "due_at", "kind", "name", "policy", "need", "on_dead",
    ),
    "edge": ("held_id", "number", "awaited_id", "state"),
    "step": (
        "message_id", "name", "key", "kind", "position", "done", "due_at", "at", "fence", "body",
    ),
    "signal": ("id", "message_id", "name", "key", "at", "consumed", "body"),
    "nudge": ("held_id",),
}  # fmt: skip
Tables = Mapping[str, list[tuple[Any, ...]]]
Item = TypeVar("Item")


async def read_waits(tx: SqlTransaction, span: dict[str, int]) -> dict[int, StoredWaits]:
    holds = [StoredHold(*row) for row in await tx.all("copy_holds", **span)]
    edges = [
        Edge(held_id, awaited_id, number, None if state is None else State(state))
        for held_id, awaited_id, number, state in await tx.all("copy_edges", **span)
    ]
    steps = [(row[0], make_step(row[1:])) for row in await tx.all("copy_steps", **span)]
    signals = make_signals(await tx.all("copy_signals", **span))
    by_id = (
        group((hold.held_id, hold) for hold in holds),
        group((edge.held_id, edge) for edge in edges),
        group(steps),
        group((signal.message_id, signal) for signal in signals),
    )
    held, awaiting, stepped, signalled = by_id
    return {
        id: StoredWaits(
            tuple(held.get(id, ())), tuple(awaiting.get(id, ())), tuple(stepped.get(id, ())),
            tuple(signalled.get(id, ())),
        )
        for id in set().union(*by_id)
    }  # fmt: skip


def group(pairs: Iterable[tuple[int, Item]]) -> dict[int, list[Item]]:
    found: dict[int, list[Item]] = defaultdict(list)
    for id, item in pairs:
        found[id].append(item)
    return found


async def read_removed_results(tx: SqlTransaction, span: dict[str, int]) -> dict[int, StoredResult]:
    """Reads results that outlive their messages, because others wait for them."""
    rows = await tx.all("copy_awaited_results", **span)
    return {id: StoredResult(bytes(body), expires_at) for id, expires_at, body in rows}


async def choose_missing(
    tx: SqlTransaction, results: Mapping[int, StoredResult]
) -> list[tuple[Any, ...]]:
    """Lists the rows of results that are not stored yet."""
    stored = {
        id for (id,) in await tx.all("copy_results_stored", ids=tx.encode_ids(sorted(results)))
    }
    return [
        (id, result.expires_at, result.body) for id, result in results.items() if id not in stored
    ]


def add_waits(tables: Tables, id: int, waits: StoredWaits) -> None:
    tables["hold"].extend(waits.holds)
    for edge in waits.edges:
        state = None if edge.state is None else edge.state.value
        tables["edge"].append((id, edge.number, edge.awaited_id, state))
    read_step, read_signal = (attrgetter(*COLUMNS[table][1:]) for table in ("step", "signal"))
    tables["step"].extend((id, *read_step(step)) for step in waits.steps)
    tables["signal"].extend((signal.id, *read_signal(signal)) for signal in waits.signals)
    # Nudges are not copied. A look finds what has ended meanwhile.
    if waits.holds:
        tables["nudge"].append((id,))
