"""Claims and settles in one packet each."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from penstock.errors import StoreError
from penstock.model.store_types import Claim, Claimed, Completion, Extension, Lock, Move
from penstock.stores.mariadb import claim as claims
from penstock.stores.mariadb import settle, upkeep
from penstock.stores.mariadb.connection import last_rows
from penstock.stores.mariadb.database import MariaDatabase, P, T, Work
from penstock.stores.mariadb.statement import locks_of
from penstock.stores.sql import consume

Locked = TypeVar("Locked", Completion, Extension)


class MariaConsume(MariaDatabase, consume.ServerConsume):
    async def claim(self, claim: Claim) -> Claimed:
        rows, expired = await self.run_claim(
            claims.make_claim_statement(claim, self.clock, self.moment)
        )
        messages = claims.make_leased(rows, claims.lease_micros(claim))
        if not expired:
            return Claimed(messages)
        if messages:
            # These are claimed already, whatever happens to the rest.
            with suppress(StoreError):
                await self.clear(claim.queue_ids)
            return Claimed(messages)
        return Claimed([], again=await self.clear(claim.queue_ids))

    async def clear(self, queue_ids: Sequence[int]) -> bool:
        """Ends expired messages as a set; those with keys to free one by one."""
        most = self.capabilities.max_batch
        ended = await self.write(upkeep.expire_in_line, queue_ids, most)
        return bool(ended or await self.write(claims.clear, queue_ids, most))

    async def claim_dead(self, claim: Claim) -> Claimed:
        rows, _ = await self.run_claim(
            claims.make_dead_claim_statement(claim, self.clock, self.moment)
        )
        return Claimed(claims.make_leased(rows, claims.lease_micros(claim), claims.DEAD_AT))

    async def run_claim(self, text: str) -> tuple[list[Any], list[Any]]:
        """Returns the claimed rows and whether expired messages are in line."""
        *found, expired, _ = await self.retry_conflicts(lambda: self.act_once(text))
        return last_rows(found), expired.listed

    async def complete_set(self, items: Sequence[Completion]) -> list[Any]:
        return await self.as_a_set(settle.make_complete_statements, items, writes=True)

    async def extend_set(self, items: Sequence[Extension]) -> list[Any]:
        return await self.as_a_set(settle.make_extend_statements, items, writes=False)

    async def as_a_set(
        self,
        texts: Callable[[Sequence[Locked]], list[str]],
        items: Sequence[Locked],
        *,
        writes: bool,
    ) -> list[Any]:
        once = list({(item.id, item.fence): item for item in reversed(items)}.values())
        return last_rows(await self.act(*texts(once), writes=writes))

    async def free_among(self, items: Sequence[Locked]) -> list[Locked]:
        free = {tuple(row) for row in await self.fetch("free_leases", locks=locks_of(items))}
        return [item for item in items if (item.id, item.fence) in free]

    async def fetch_leases(self, locks: Sequence[Lock]) -> list[Any]:
        return await self.fetch("leases", locks=locks_of(locks))

    async def settle_set(self, moves: Sequence[Move]) -> list[Any]:
        return await self.write(settle.settle_free, moves)

    async def write_briefly(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Writes with the session's lock timeout, which is short already."""
        return await self.write(work, *args, **kwargs)
