"""Claims and settles in one statement each."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from penstock.errors import StoreBusy, StoreError
from penstock.model.store_types import Claim, Claimed, Completion, Extension, Lock, Move
from penstock.stores.postgres import claim as claiming
from penstock.stores.postgres import settle
from penstock.stores.postgres.claim_cursor import ClaimCursor, ClaimSpan, CursorPosition
from penstock.stores.postgres.database import BEGIN_BRIEFLY, MAX_TRIES, P, PostgresDatabase, T, Work
from penstock.stores.postgres.statement import CLAIMS
from penstock.stores.sql import consume

Locked = TypeVar("Locked", Completion, Extension)


class PostgresConsume(PostgresDatabase, consume.ServerConsume):
    async def claim(self, claim: Claim) -> Claimed:
        way = claiming.pick(claim)
        rows = await self.pick_one(claim) if way == "pick_one" else await self.pick(way, claim)
        if not rows or rows[-1][0] is not None:
            return Claimed(claiming.make_leased(rows))
        rows.pop()
        if rows:
            # These are claimed already, whatever happens to the rest.
            with suppress(StoreError):
                await self.clear(claim.queue_ids)
            return Claimed(claiming.make_leased(rows))
        return Claimed([], again=await self.clear(claim.queue_ids))

    async def pick(self, way: str, claim: Claim, after: CursorPosition | None = None) -> list[Any]:
        values = claiming.make_terms(claim)
        if after is not None:
            values |= {"rank": after.rank, "id": after.id}
        for _ in range(MAX_TRIES - 1):
            try:
                return await self.ask(CLAIMS[way], values)
            except StoreBusy as error:
                # SKIP LOCKED waits for no row, and other locks are brief.
                if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                    raise
        return await self.ask(CLAIMS[way], values)

    async def pick_one(self, claim: Claim) -> list[Any]:
        """Claims from the head of one queue, or from its claim cursor."""
        line = self.lines.setdefault(claim.queue_ids[0], ClaimCursor())
        heard, started = self.waiters.heard_of(claim.queue_ids[0]), time.monotonic()
        after = line.choose_start(started, heard)
        if after is not None:
            rows = await self.pick("pick_after", claim, after)
            if rows:
                line.advance(measure_claim(started, rows), claiming.find_last_position(rows))
                return rows
            started = time.monotonic()
        rows = await self.pick("pick_one", claim)
        line.record_claim(measure_claim(started, rows), heard, claiming.find_last_position(rows))
        return rows

    async def clear(self, queue_ids: Sequence[int]) -> bool:
        """Ends expired messages as a set; those with keys to free one by one."""
        most = self.capabilities.max_batch
        ((ended,),) = await self.fetch("expire_ready", queues=list(queue_ids), limit=most)
        return bool(ended or await self.write(claiming.clear, queue_ids, most))

    async def claim_dead(self, claim: Claim) -> Claimed:
        rows = await self.fetch("claim_dead", **claiming.make_terms(claim))
        return Claimed(claiming.make_leased(rows))

    async def complete_set(self, items: Sequence[Completion]) -> list[Any]:
        name, values = settle.make_completion(items)
        return await self.fetch(name, **values)

    async def extend_set(self, items: Sequence[Extension]) -> list[Any]:
        return await self.fetch("extend_many", **settle.make_extension(items))

    async def free_among(self, items: Sequence[Locked]) -> list[Locked]:
        free = {tuple(row) for row in await self.fetch("free_leases", **settle.locks_of(items))}
        return [item for item in items if (item.id, item.fence) in free]

    async def fetch_leases(self, locks: Sequence[Lock]) -> list[Any]:
        return await self.fetch("leases", **settle.locks_of(locks))

    async def settle_set(self, moves: Sequence[Move]) -> list[Any]:
        rows = await self.fetch("settle_many", **settle.make_moves(moves))
        self.waiters.tell({queue_id for _, queue_id, state in rows if state == "ready"})
        return rows

    async def write_briefly(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write_by(BEGIN_BRIEFLY, work, *args, **kwargs)


def measure_claim(started: float, rows: list[Any]) -> ClaimSpan:
    ended = time.monotonic()
    return ClaimSpan(ended - started, ended, len(rows))
