"""Claims and settles: a packet or two each, and a closer look at what they leave out."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from penstock.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnreachable
from penstock.message import Verb
from penstock.stores.mariadb import claim as claiming
from penstock.stores.mariadb import settle
from penstock.stores.mariadb.engine import BEGIN, COMMIT, Engine, P, Work
from penstock.stores.mariadb.session import rows_of
from penstock.stores.mariadb.trouble import ERRORS, gone, named
from penstock.stores.sql import sets
from penstock.stores.sql import settle as settling
from penstock.stores.sql.settle import BUSY
from penstock.ticket import (
    DONE,
    Answer,
    AnswerKind,
    Claim,
    Claimed,
    Completion,
    Extension,
    Lease,
    Lock,
    Move,
)

Moving: TypeAlias = Callable[[Sequence[Any]], list[str]]
Handed: TypeAlias = tuple[list[Any], list[Any], list[Any]]
Locked = TypeVar("Locked", Completion, Extension)
# Somebody's look at a row, unlike their open transaction, is over soon.
LOOKS, A_LOOK = 3, 0.01


class Consuming(Engine):
    async def claim(self, claim: Claim) -> Claimed:
        picking = claiming.picking(claim)
        rows, found, expired = await self.hand_out(picking, claiming.moving)
        if not expired:
            return Claimed(claiming.leased(rows, found))
        if rows:
            # They are ours already, whatever becomes of the others.
            with suppress(StoreError):
                await self.clear(claim.queue_ids)
            return Claimed(claiming.leased(rows, found))
        return Claimed([], again=await self.clear(claim.queue_ids))

    async def clear(self, queue_ids: Sequence[int]) -> bool:
        """Ends what expired in line."""
        return bool(await self.write(claiming.clear, queue_ids, self.capabilities.max_batch))

    async def claim_dead(self, claim: Claim) -> Claimed:
        picking = claiming.picking_dead(claim)
        rows, found, _ = await self.hand_out(picking, claiming.moving_dead)
        return Claimed(claiming.leased(rows, found))

    async def hand_out(self, picking: list[str], moving: Moving) -> Handed:
        """The tickets, their messages, and what else the picking found."""
        return await self.trying(lambda: self.hand_out_once(picking, moving))

    async def hand_out_once(self, picking: list[str], moving: Moving) -> Handed:
        self.refuse_closed()
        async with self.pool.use() as session:
            try:
                outcomes = await session.send(BEGIN, self.clock, *picking)
                rows, *others = [list(each.rows) for each in outcomes if each.rows is not None]
                rest = moving(rows) if rows else [COMMIT]
                return rows, await session.rows(*rest), others[0] if others else []
            except ERRORS as error:
                await self.undo(session, error)
                if gone(error):
                    raise named(error, self.where, sent=True) from error
                raise

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        rows = await self.as_a_set(settle.completing, items, writes=True)
        if len(rows) == len(items):
            return [DONE] * len(rows)
        answers = sets.done(items, rows)
        return [
            answer or await self.patiently(settling.complete_one, item)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        rows = await self.as_a_set(settle.extending, items, writes=False)
        answers = sets.prolonged(items, rows)
        return [
            answer or await self.patiently(settling.why_not, item.id, item.fence)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def as_a_set(
        self,
        texts: Callable[[Sequence[Locked]], list[str]],
        items: Sequence[Locked],
        *,
        writes: bool,
    ) -> list[Any]:
        """Without those that somebody's transaction holds, if one does."""
        if not items:
            return []
        once = list({(item.id, item.fence): item for item in reversed(items)}.values())
        try:
            outcomes = await self.act(*texts(once), writes=writes)
        except StoreBusy:
            free = await self.free_among(once)
            outcomes = await self.act(*texts(free), writes=writes) if free else []
        return rows_of(outcomes)

    async def free_among(self, items: Sequence[Locked]) -> list[Locked]:
        free = {tuple(row) for row in await self.fetch("free_leases", locks=settle.locks_of(items))}
        return [item for item in items if (item.id, item.fence) in free]

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        if not locks:
            return []
        rows = await self.fetch("leases", locks=settle.locks_of(locks))
        found = {(row[0], row[1]): settling.lease_of(row[:-1], row[-1]) for row in rows}
        return [found.get((lock.id, lock.fence)) for lock in locks]

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        return await self.write(settling.explain_all, locks, verbs)

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        asked = Counter(move.id for move in moves)
        # Moves of one lease are made in the order they were decided.
        together = [move for move in moves if sets.as_set(move) and asked[move.id] == 1]
        rows = await self.write(settle.settle_free, together) if together else []
        answers = sets.moved(moves, rows)
        return [
            answer or await self.patiently(settling.settle_one, move)
            for move, answer in zip(moves, answers, strict=True)
        ]

    async def patiently(self, work: Work[P, Answer], *args: P.args, **kwargs: P.kwargs) -> Answer:
        """BUSY only if it is for longer than a look. Others of the same call may be done already:
        that this one is not must not be said of them."""
        try:
            for _ in range(LOOKS):
                answer = await self.write(work, *args, **kwargs)
                if answer.kind is not AnswerKind.BUSY:
                    return answer
                await asyncio.sleep(A_LOOK)
        except StoreBusy:
            return BUSY
        except StoreUnreachable as error:
            raise OutcomeUnknown(str(error)) from error
        return BUSY
