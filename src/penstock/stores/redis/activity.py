"""Reads leases and headings of messages for live events, activity and traces."""

from collections.abc import Sequence

from penstock.model.activity import Heading, HeldLease
from penstock.stores.redis.codec import decode_head, decode_held, encode_id
from penstock.stores.redis.database import RedisDatabase

# Values that one command reads.
CHUNK = 1_000
MAX_HEADINGS = 200
FOREVER = 2**53


class RedisActivity:
    def __init__(self, database: RedisDatabase) -> None:
        self.database = database

    async def held(self, after: int, limit: int) -> list[HeldLease]:
        """Looks at the leases that end last: the new ones and the extended ones."""
        ask = self.database.ask
        words = await ask("ZREVRANGE", "lease_until", 0, limit - 1, "WITHSCORES")
        ids, untils = words[::2], words[1::2]
        found = []
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            for id, text, until in zip(
                chunk, await ask("HMGET", "lease", *chunk), untils[start:], strict=False
            ):
                if text is not None and int(text.partition(b" ")[0]) > after:
                    found.append(decode_held_lease(id, text, until))
        return sorted(found, key=lambda lease: (lease.fence, lease.id))

    async def headings(self, ids: Sequence[int]) -> dict[int, Heading]:
        found: dict[int, Heading] = {}
        left = [id for id in ids if 0 < id < FOREVER]
        while left:
            words = map(encode_id, left[:MAX_HEADINGS])
            heads = await self.database.run("headings", *words)
            for id, text in zip(left, heads, strict=False):
                if text:
                    head = decode_head(text)
                    found[id] = Heading(head.type, head.meta.correlation_id, head.queue_id)
            left = left[len(heads) :]
        return found


def decode_held_lease(id: bytes, text: bytes, until: bytes) -> HeldLease:
    held = decode_held(text)
    return HeldLease(
        id=int(id, 16),
        fence=held.fence,
        queue_id=held.queue_id,
        consumer=held.consumer,
        attempts=held.attempts,
        claimed_at=held.claimed_at,
        lease_until=int(float(until)),
    )
