"""Reads messages and implements the operator verbs on them."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from penstock.errors import Archived
from penstock.model.activity import Heading, HeldLease
from penstock.model.changes import Horizon
from penstock.model.message import Flag, Moment, Record, State
from penstock.model.search import Position, Scan, ScanHead, ScanPage, Source
from penstock.model.store_types import Answer, Diagnosis, Query
from penstock.rules.settlements import make_seen_key
from penstock.stores.redis.codec import (
    decode_answer,
    decode_dead,
    decode_head,
    decode_held,
    decode_history,
    decode_message,
    decode_moment,
    decode_waiting,
    digest_correlation,
    encode_id,
    encode_queue_id,
    make_field,
)
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.sql.records import make_history_record
from penstock.stores.sql.search import scan_pages

# Numbers of Lua are exact below it.
MAX_ID = 2**53
# Messages that one script reads.
MAX_SCAN = 200
# Sources whose order begins with a rank or a moment.
KEYED = (Source.READY, Source.DEAD)


class RedisRecords:
    def __init__(self, database: RedisDatabase) -> None:
        self.database = database

    async def get(self, id: int) -> Record | None:
        # Ids are between 0 and this.
        if not 0 < id < MAX_ID:
            return None
        (found,) = await self.database.run("get", 1, encode_id(id))
        if found:
            return decode_record(id, found)
        if id <= int(await self.database.ask("HGET", "fact", "pruned") or 0):
            raise Archived(f"message {id} ended and was removed by retention")
        return None

    async def named(self, queue_id: int, name: str) -> int | None:
        found = await self.database.ask("HGET", "name", make_field(queue_id, name))
        return int(found, 16) if found else None

    async def seen(self, queue_id: int, key: str) -> int | None:
        found = await self.database.run("seen", make_field(queue_id, make_seen_key(key)))
        return int(found, 16) if found else None

    async def result(self, id: int) -> bytes | None:
        found: bytes | None = await self.database.run("result", encode_id(id))
        return found

    async def diagnose(self, id: int, queue_id: int, limit: int = 1_000) -> Diagnosis:
        words = encode_id(id), encode_queue_id(queue_id), limit
        ahead, claimed = await self.database.run("diagnose", *words)
        return Diagnosis(ahead, claimed)

    async def find(self, query: Query) -> list[Record]:
        if query.correlation_id is not None:
            ids = await self.find_correlated(query)
        elif query.state is State.DEAD and query.after is None:
            ids = await self.dead_of(query)
        else:
            ids = await self.scan_ids(query)
        records = await self.get_encoded(ids)
        fitting = [each for each in records if matches(each, query)]
        return fitting[: query.limit]

    async def get_many(self, ids: Sequence[int]) -> list[Record]:
        return await self.get_encoded([encode_id(id) for id in ids if 0 < id < MAX_ID])

    async def get_encoded(self, ids: Sequence[bytes]) -> list[Record]:
        found = await self.database.run("get", 0, *ids) if ids else []
        return [
            decode_record(int(id, 16), fields)
            for id, fields in zip(ids, found, strict=True)
            if fields
        ]

    async def scan(self, scan: Scan) -> ScanPage:
        return await scan_pages(scan, partial(self.scan_page, scan))

    async def scan_page(self, scan: Scan, after: Position, limit: int) -> ScanPage:
        words, key, id = await self.database.run(
            "scan", scan.source.value,
            encode_id(after.key) if after.id and scan.source in KEYED else b"",
            encode_id(after.id) if after.id else b"",
            min(limit, MAX_SCAN), digest_correlation(scan.correlation_id or ""),
            encode_queue_id(after.queue_id),
            *(encode_id(id) for id in sorted(scan.ids, reverse=True) if id < MAX_ID),
        )  # fmt: skip
        heads = [decode_scan_head(words[at : at + 6]) for at in range(0, len(words), 6)]
        reached = Position(after.queue_id, int(key or b"0", 16), int(id, 16)) if id else None
        return ScanPage(heads, reached)

    async def scan_ids(self, query: Query) -> list[bytes]:
        """Scans in pages, so that other clients do not wait long."""
        ids: list[bytes] = []
        before = MAX_ID if query.before is None else query.before
        step = -1 if query.after is None else 1
        bound = b"%d" % (before if query.after is None else query.after)
        while bound and len(ids) < query.limit:
            found, bound = await self.database.run(
                "find", bound, query.limit - len(ids), query.state or "", query.type or "", step,
                *map(encode_queue_id, query.queue_ids),
            )  # fmt: skip
            ids += found
        return ids

    async def dead_of(self, query: Query) -> list[bytes]:
        members = await self.database.run("find_dead", *map(encode_queue_id, query.queue_ids))
        kind = None if query.type is None else query.type.encode()
        ids = [member[:14] for member in members if kind is None or member[14:] == kind]
        return encode_upper_bound(ids, query.before)[: query.limit]

    async def find_correlated(self, query: Query) -> list[bytes]:
        """Reads all messages of a correlation id, which are few, and filters by state here."""
        name = digest_correlation(query.correlation_id or "")
        members = await self.database.ask(
            "ZRANGEBYLEX", "correlation", b"[" + name, b"(" + name + b"g"
        )
        return encode_upper_bound([member[-14:] for member in members], query.before)

    async def cancel(self, ids: Sequence[int], *, force: bool = False) -> list[Answer]:
        reply = await self.database.run("cancel", int(force), *map(encode_id, ids))
        return [decode_answer(text, State.CANCELLED) for text in reply]

    async def redrive(self, ids: Sequence[int]) -> list[Answer]:
        reply = await self.database.run("redrive", *map(encode_id, ids))
        return [decode_answer(text, State.READY) for text in reply]

    async def horizon(self) -> Horizon:
        message, position = await self.database.ask("HMGET", "fact", "message", "position")
        return Horizon(await self.database.now(), int(message or 0), int(position or 0))

    async def purge(self, queue_id: int, places: Collection[str], limit: int) -> int:
        return int(await self.database.run("purge", encode_queue_id(queue_id), limit, *places))

    async def expire_dead(self, queue_id: int, before: Moment, limit: int) -> int:
        words = encode_queue_id(queue_id), before, limit
        return int(await self.database.run("expire_dead", *words))

    async def purge_dead(self, ids: Sequence[int]) -> list[Answer]:
        reply = await self.database.run("purge_dead", *map(encode_id, ids))
        return [decode_answer(text, State.CANCELLED) for text in reply]


def encode_upper_bound(ids: list[bytes], before: int | None) -> list[bytes]:
    """Encodes the upper bound of the next page; newest first."""
    bound = encode_id(MAX_ID if before is None else before)
    return sorted((id for id in ids if id < bound), reverse=True)


def matches(record: Record, query: Query) -> bool:
    message = record.message
    return (
        message.queue_id in query.queue_ids
        and query.type in (None, message.type)
        and query.state in (None, record.state)
    )


def decode_scan_head(words: list[Any]) -> ScanHead:
    id, queue, type_, created_at, size, key = words
    return ScanHead(
        int(id, 16), int(queue, 16), type_.decode(), int(created_at), size, int(key or b"0", 16)
    )


def decode_record(id: int, parts: list[Any]) -> Record:
    """Decodes a record. A ticket overrides history; without either it is ready."""
    value, lease, until, mark, ticket, scheduled, due, dead, rows, holder = parts
    timeline = tuple(map(decode_history, rows[::3], rows[1::3], rows[2::3]))
    head = decode_head(value)
    record = Record(
        decode_message(encode_id(id), value), State.READY,
        run_at=head.run_at, expires_at=head.expires_at, timeline=timeline,
    )  # fmt: skip
    if lease:
        return make_leased_record(record, lease, int(until), mark, dead)
    if scheduled:
        return make_scheduled_record(record, ticket, due, holder)
    return make_dead_record(record, dead) if dead else make_history_record(record)


def make_leased_record(
    record: Record, lease: bytes, until: int, mark: bytes, dead: bytes
) -> Record:
    held = decode_held(lease)
    dead_ticket = decode_dead(dead) if dead else None
    begun_at, percent, note = (*mark.split(b" ", 2), b"", b"")[:3]
    return Record(
        record.message, State.CLAIMED, held.attempts, held.deliveries,
        dead_ticket.reason if dead_ticket else None, dead_ticket.error if dead_ticket else None,
        record.run_at, record.expires_at, None, until, held.consumer,
        bool(held.flags & Flag.CANCEL_REQUESTED),
        None if percent in (b"", b"-") else float(percent), note[1:].decode() if note else None,
        record.timeline, held.claimed_at, decode_moment(begun_at),
    )  # fmt: skip


def make_scheduled_record(record: Record, ticket: bytes, due: bytes, holder: bytes) -> Record:
    waiting = decode_waiting(ticket)
    last = record.timeline[-1] if record.timeline else None
    return Record(
        record.message, State.SCHEDULED, waiting.attempts, waiting.deliveries,
        last.reason if last else None, last.error if last else None, record.run_at,
        record.expires_at, decode_moment(due), timeline=record.timeline,
        blocked_by=int(holder, 16) if holder and not due else None,
    )  # fmt: skip


def make_dead_record(record: Record, dead: bytes) -> Record:
    dead_ticket = decode_dead(dead)
    return Record(
        record.message, State.DEAD, dead_ticket.attempts, dead_ticket.deliveries,
        dead_ticket.reason, dead_ticket.error, record.run_at, record.expires_at,
        timeline=record.timeline,
    )  # fmt: skip


# Values that one command reads.
CHUNK = 1_000
MAX_HEADINGS = 200
# Ordering keys whose queues are looked up.
MAX_SAMPLED_KEYS = 200


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
        left = [id for id in ids if 0 < id < MAX_ID]
        while left:
            words = map(encode_id, left[:MAX_HEADINGS])
            heads = await self.database.run("headings", *words)
            for id, text in zip(left, heads, strict=False):
                if text:
                    head = decode_head(text)
                    found[id] = Heading(head.type, head.meta.correlation_id, head.queue_id)
            left = left[len(heads) :]
        return found

    async def queues_with_keys(self) -> frozenset[int]:
        found = await self.database.ask("HRANDFIELD", "head", MAX_SAMPLED_KEYS, "WITHVALUES")
        headings = await self.headings([int(id, 16) for id in found[1::2]])
        return frozenset(heading.queue_id for heading in headings.values())


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
