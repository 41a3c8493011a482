"""Looks at held messages that were nudged or are due, and resumes those without a hold left.

Nothing that ends touches a waiting message: it writes a nudge, and this works the nudges off.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from penstock.model.message import Flag, Moment, State, Verb
from penstock.model.waiting import ResumeResult, StoredHold
from penstock.rules.waiting import decide_after, waits_for_all
from penstock.stores.sql import ordering_keys
from penstock.stores.sql.records import make_message
from penstock.stores.sql.settle import end
from penstock.stores.sql.transaction import SqlTransaction, Ticket

# Nudges read to find the messages to look at; one message may have many.
NUDGES_PER_LOOK = 5_000
# The awaited message of a nudge that came with settled edges.
SETTLED = 0


async def resume_held(tx: SqlTransaction, limit: int) -> ResumeResult:
    """Looks at held messages that were nudged or are due; resumes those without a hold left."""
    asked = await find_asked(tx, limit)
    ids = await tx.try_hold(asked)
    if not ids:
        return ResumeResult(0, 0, tx.now, await find_next_due(tx))
    encoded = tx.encode_ids(ids)
    # Read before the facts: what a nudge announces was committed with it.
    nudges = await tx.all("nudges_of", ids=encoded)
    tickets = {row[2]: Ticket(*row) for row in await tx.all("held_tickets", ids=encoded)}
    resumed = await check_holds(tx, tickets, nudges) if tickets else 0
    # A ticket that another transaction has locked is looked at again.
    locked = await find_locked(tx, set(ids) - tickets.keys())
    gone = [id for id, held_id, _ in nudges if held_id not in locked]
    if gone:
        await tx.run("drop_nudges", ids=tx.encode_ids(gone))
    if orphans := sorted(set(ids) - tickets.keys() - locked):
        await tx.run("drop_holds", ids=tx.encode_ids(orphans))
    return ResumeResult(len(ids), resumed, tx.now, await find_next_due(tx), len(asked) >= limit)


async def has_afters(tx: SqlTransaction, after: int) -> bool:
    return bool(await tx.all("holds_after", after=after, limit=1))


async def nudge_missed(tx: SqlTransaction, after: int, limit: int) -> int | None:
    """Nudges held messages whose awaited message has ended unannounced.

    The end of a message announces itself to the edges that its statement sees. On servers with
    snapshots it may miss one that another transaction writes at that moment.
    """
    held = [id for (id,) in await tx.all("holds_after", after=after, limit=limit)]
    if not held:
        return None
    rows = await tx.all("edges_ended", ids=tx.encode_ids(held))
    missed = sorted({id for id, _, state in rows if state != State.DEAD.value})
    if done := sorted({awaited for _, awaited, state in rows if state == State.COMPLETED.value}):
        await tx.run("keep_nothing", ids=tx.encode_ids(done), now=tx.now)
    await tx.run_many("nudge_add", [{"held_id": id} for id in missed])
    return held[-1] if len(held) == limit else None


async def find_next_due(tx: SqlTransaction) -> Moment | None:
    row = await tx.one("next_hold_due")
    return None if row is None else row[0]


async def find_asked(tx: SqlTransaction, limit: int) -> list[int]:
    rows = await tx.all("nudged", limit=NUDGES_PER_LOOK)
    rows += await tx.all("holds_due", now=tx.now, limit=limit)
    return list(dict.fromkeys(row[0] for row in rows))[:limit]


async def find_locked(tx: SqlTransaction, ids: set[int]) -> set[int]:
    """Returns those that are still scheduled and held, but locked by another transaction."""
    if not ids:
        return set()
    return {id for (id,) in await tx.all("held_among", ids=tx.encode_ids(sorted(ids)))}


async def check_holds(tx: SqlTransaction, tickets: dict[int, Ticket], nudges: Sequence[Any]) -> int:
    ids = sorted(tickets)
    holds: dict[int, list[StoredHold]] = defaultdict(list)
    for row in await tx.all("holds_of", ids=tx.encode_ids(ids)):
        holds[row[0]].append(StoredHold(*row))
    decided = await settle_edges(tx, ids, holds, nudges)
    ended = await find_ended(tx, ids, holds, decided)
    free: list[Ticket] = []
    for id in ids:
        verdicts = [ended.get((id, hold.place)) for hold in holds[id]]
        if False in verdicts:
            await cancel_dependent(tx, tickets[id])
        elif all(verdicts):
            free.append(tickets[id])
        else:
            await keep_holding(tx, holds[id], verdicts)
    await resume_tickets(tx, free)
    return len(free)


async def settle_edges(
    tx: SqlTransaction, ids: list[int], holds: dict[int, list[StoredHold]], nudges: Sequence[Any]
) -> set[int]:
    """Marks the edges whose message has ended, each once.

    Returns the messages that may have to end or resume although edges of theirs are open.
    """
    waiting = [id for id in ids if any(hold.kind == "after" for hold in holds[id])]
    if not waiting:
        return set()
    known = set(waiting)
    awaited = {awaited for _, id, awaited in nudges if id in known and awaited is not None}
    # A nudge without a message asks for all of them; so does a hold that is due.
    nudged = {id for _, id, awaited in nudges if awaited is not None}
    whole = [id for _, id, awaited in nudges if awaited is None and id in known]
    full = sorted(set(whole) | (known - nudged))
    rows = await tx.all("edges_ended", ids=tx.encode_ids(full)) if full else []
    part = sorted(known - set(full))
    if part and awaited - {SETTLED}:
        rows += await tx.all(
            "edges_ended_by", ids=tx.encode_ids(part), awaited=tx.encode_ids(sorted(awaited))
        )
    settles = {id: any(hold.on_dead == "settle" for hold in holds[id]) for id in waiting}
    by_state: dict[str, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    for held_id, awaited_id, state in rows:
        if state != State.DEAD.value or settles[held_id]:
            by_state[state][0].add(held_id)
            by_state[state][1].add(awaited_id)
    for state, (held, ended) in by_state.items():
        await tx.run(
            "edges_settle", state=state, ids=tx.encode_ids(sorted(held)),
            awaited=tx.encode_ids(sorted(ended)),
        )  # fmt: skip
    failed = [held for state, (held, _) in by_state.items() if state != State.COMPLETED.value]
    return set(full).union(*failed)


async def find_ended(
    tx: SqlTransaction, ids: list[int], holds: dict[int, list[StoredHold]], decided: set[int]
) -> dict[tuple[int, int], bool | None]:
    """Returns by message and place of the hold: True if it ended, False if it never can."""
    rows = [row for id in ids for row in holds[id]]
    kinds = {row.kind for row in rows}
    signals: set[tuple[int, str]] = set()
    if "signal" in kinds:
        signals = {(id, name) for id, name in await tx.all("signals_held", ids=tx.encode_ids(ids))}
    counts = await count_edges(tx, [row for row in rows if row.kind == "after"], decided)
    return {
        (row.held_id, row.place): has_ended(row, tx.now, signals, counts[row.held_id, row.number])
        for row in rows
    }


async def count_edges(
    tx: SqlTransaction, holds: Sequence[StoredHold], decided: set[int]
) -> dict[tuple[int, int], dict[str | None, int]]:
    """Returns the edges by message and number, and of each how many ended in which state.

    A message that waits for the end of all others waits on while one edge is open. One is found
    at once, but to count 10,000 edges whenever some of them end takes long.
    """
    counts: dict[tuple[int, int], dict[str | None, int]] = defaultdict(dict)
    counted = decided | {hold.held_id for hold in holds if not waits_for_all(hold.policy)}
    if patient := sorted({hold.held_id for hold in holds} - counted):
        for id, number in await tx.all("edges_open", ids=tx.encode_ids(patient)):
            counts[id, number] = {None: 1}
    counted |= {hold.held_id for hold in holds if (hold.held_id, hold.number) not in counts}
    if counted:
        for id, number, state, count in await tx.all(
            "edge_counts", ids=tx.encode_ids(sorted(counted))
        ):
            counts[id, number][state] = count
    return counts


def has_ended(
    row: StoredHold, now: Moment, signals: set[tuple[int, str]], counts: dict[str | None, int]
) -> bool | None:
    if row.due_at <= now:
        return True
    match row.kind:
        case "signal":
            return True if (row.held_id, row.name) in signals else None
        case "after":
            met = decide_after(row.policy, row.need, counts)
            # A run that waits for its children is resumed, and sees which of them failed.
            return True if met is False and row.number != 0 else met
        case _:
            return None


async def cancel_dependent(tx: SqlTransaction, ticket: Ticket) -> None:
    if await tx.one("take_scheduled", id=ticket.id) is not None:
        await end(tx, ticket, Verb.CANCEL, State.CANCELLED, "dependency_failed")


async def keep_holding(
    tx: SqlTransaction, holds: Sequence[StoredHold], verdicts: Sequence[bool | None]
) -> None:
    over = [hold for hold, verdict in zip(holds, verdicts, strict=True) if verdict]
    for hold in over:
        await tx.run("drop_hold", held_id=hold.held_id, place=hold.place)
    if over:
        due_at = min(hold.due_at for hold in holds if hold not in over)
        await tx.run("reschedule_held", id=over[0].held_id, due_at=due_at)


async def resume_tickets(tx: SqlTransaction, tickets: Sequence[Ticket]) -> None:
    """Makes the messages ready. One with an ordering key that is not its turn gets in line."""
    if not tickets:
        return
    keyed = [ticket for ticket in tickets if ticket.flags & Flag.KEYED]
    heads: set[int] = set()
    if keyed:
        rows = await tx.all("heads_among", ids=tx.encode_ids([ticket.id for ticket in keyed]))
        heads = {id for (id,) in rows}
    await tx.run("drop_holds", ids=tx.encode_ids(sorted(ticket.id for ticket in tickets)))
    at_once = [each for each in tickets if not each.flags & Flag.KEYED or each.id in heads]
    if at_once:
        encoded = tx.encode_ids(sorted(ticket.id for ticket in at_once))
        await tx.run("resume_held", ids=encoded)
        await tx.run("leave_held", ids=encoded)
        tx.woken.update(ticket.queue_id for ticket in at_once)
    for ticket in keyed:
        if ticket.id not in heads and await tx.one("take_scheduled", id=ticket.id) is not None:
            key = make_message((await tx.one("message", id=ticket.id))[:7]).meta.ordering_key or ""
            unheld = ticket._replace(flags=ticket.flags & ~Flag.HELD)
            await ordering_keys.get_in_line(tx, unheld, key, ticket.id)
