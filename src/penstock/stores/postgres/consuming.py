"""Claims and settles: one statement each, and a closer look at what it leaves out."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from penstock.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnreachable
from penstock.message import Verb
from penstock.stores.postgres import claim as claiming
from penstock.stores.postgres import settle
from penstock.stores.postgres.engine import BEGIN_BRIEFLY, Engine, P, Work
from penstock.stores.postgres.lines import Line, Place, Took
from penstock.stores.postgres.statement import CLAIMS
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

Locked = TypeVar("Locked", Completion, Extension)
# Somebody's look at a row, unlike their open transaction, is over soon.
LOOKS, A_LOOK = 3, 0.01


class Consuming(Engine):
    async def claim(self, claim: Claim) -> Claimed:
        way = claiming.pick(claim)
        rows = await self.pick_one(claim) if way == "pick_one" else await self.pick(way, claim)
        if not rows or rows[-1][0] is not None:
            return Claimed(claiming.leased(rows))
        rows.pop()
        if rows:
            # They are ours already, whatever becomes of the others.
            with suppress(StoreError):
                await self.clear(claim.queue_ids)
            return Claimed(claiming.leased(rows))
        return Claimed([], again=await self.clear(claim.queue_ids))

    async def pick(self, way: str, claim: Claim, after: Place | None = None) -> list[Any]:
        values = claiming.terms(claim)
        if after is not None:
            values |= {"rank": after.rank, "id": after.id}
        return await self.ask(CLAIMS[way], values)

    async def pick_one(self, claim: Claim) -> list[Any]:
        """From the head of one queue, or from where its line is known to begin."""
        line = self.lines.setdefault(claim.queue_ids[0], Line())
        heard, started = self.waiters.heard_of(claim.queue_ids[0]), time.monotonic()
        after = line.begins(started, heard)
        if after is not None:
            rows = await self.pick("pick_after", claim, after)
            if rows:
                line.went_on(took(started, rows), claiming.last_place(rows))
                return rows
            started = time.monotonic()
        rows = await self.pick("pick_one", claim)
        line.took(took(started, rows), heard, claiming.last_place(rows))
        return rows

    async def clear(self, queue_ids: Sequence[int]) -> bool:
        """Ends what expired in line. What has keys to free is looked at one by one."""
        most = self.capabilities.max_batch
        ((ended,),) = await self.fetch("expire_ready", queues=list(queue_ids), limit=most)
        return bool(ended or await self.write(claiming.clear, queue_ids, most))

    async def claim_dead(self, claim: Claim) -> Claimed:
        rows = await self.fetch("claim_dead", **claiming.terms(claim))
        return Claimed(claiming.leased(rows))

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        rows = await self.complete_free(items)
        if len(rows) == len(items):
            return [DONE] * len(rows)
        answers = sets.done(items, rows)
        return [
            answer or await self.patiently(settling.complete_one, item)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def complete_free(self, items: Sequence[Completion]) -> list[Any]:
        """As one set; without those that somebody's transaction holds, if one does."""
        name, values = settle.completion(items)
        try:
            return await self.fetch(name, **values)
        except StoreBusy:
            free = await self.free_among(items)
        if not free:
            return []
        name, values = settle.completion(free)
        return await self.fetch(name, **values)

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        try:
            rows = await self.fetch("extend_many", **settle.extension(items))
        except StoreBusy:
            free = await self.free_among(items)
            rows = await self.fetch("extend_many", **settle.extension(free)) if free else []
        answers = sets.prolonged(items, rows)
        return [
            answer or await self.patiently(settling.why_not, item.id, item.fence)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def free_among(self, items: Sequence[Locked]) -> list[Locked]:
        locks = {"ids": [item.id for item in items], "fences": [item.fence for item in items]}
        free = {tuple(row) for row in await self.fetch("free_leases", **locks)}
        return [item for item in items if (item.id, item.fence) in free]

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        ids, fences = [lock.id for lock in locks], [lock.fence for lock in locks]
        rows = await self.fetch("leases", ids=ids, fences=fences)
        found = {(row[0], row[1]): settling.lease_of(row[:-1], row[-1]) for row in rows}
        return [found.get((lock.id, lock.fence)) for lock in locks]

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        return await self.write(settling.explain_all, locks, verbs)

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        # Of several about one lease, each has to see what the ones before it did.
        times = Counter(move.id for move in moves)
        together = [move for move in moves if times[move.id] == 1 and sets.as_set(move)]
        rows = await self.fetch("settle_many", **settle.moving(together)) if together else []
        self.waiters.tell({queue_id for _, queue_id, state in rows if state == "ready"})
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
                answer = await self.write_by(BEGIN_BRIEFLY, work, *args, **kwargs)
                if answer.kind is not AnswerKind.BUSY:
                    return answer
                await asyncio.sleep(A_LOOK)
        except StoreBusy:
            return BUSY
        except StoreUnreachable as error:
            raise OutcomeUnknown(str(error)) from error
        return BUSY


def took(started: float, rows: list[Any]) -> Took:
    ended = time.monotonic()
    return Took(ended - started, ended, len(rows))
