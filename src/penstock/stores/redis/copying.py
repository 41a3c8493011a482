"""Dumps messages with everything kept about them, and restores them under the same ids."""

from collections.abc import Container, Iterator, Mapping
from typing import Any

from penstock.model.copies import (
    CopyCursor,
    StoreCounters,
    StoredKey,
    StoredLife,
    StoredResult,
    StoredTicket,
    StoreDump,
)
from penstock.model.message import NEVER, Flag, HistoryRow, Meta
from penstock.stores.redis import copying_waits
from penstock.stores.redis.codec import (
    NONE,
    compute_digest,
    decode_history,
    decode_moment,
    digest_correlation,
    encode_id,
    encode_queue_id,
    make_feed_message,
    make_field,
    split_fields,
)
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.redis.publish import to_micros
from penstock.stores.sql.copying import MAX_PAGE_BYTES, encode_plain_meta

# Ranks are stored with this offset, so that they sort as text.
RANK_OFFSET = 2**53
# Ids that are scanned faster than skipped.
MIN_GAP = 1_000
UNIQUE = "unique:"
NO_TICKET = ("",) * 7
# Hexadecimal digits of a message id.
ID_LENGTH = 14
PAGE_SIZE = 2_500


class RedisCopying:
    def __init__(self, database: RedisDatabase) -> None:
        self.database = database

    async def count_waits(self) -> int:
        sizes = [await self.database.ask("HLEN", key) for key in ("hold", "step", "signal")]
        if not any(sizes):
            return 0
        fields = await self.database.ask("HKEYS", "signal")
        signalled = {int(field[:ID_LENGTH], 16) for field in fields}
        count, page = 0, await self.dump(CopyCursor(None), PAGE_SIZE)
        while not page.done:
            count += sum(is_waiting(life, signalled) for life in page.lives)
            page = await self.dump(page.cursor, PAGE_SIZE)
        return count

    async def dump(self, cursor: CopyCursor, limit: int) -> StoreDump:
        if cursor.keys is not None:
            return await self.dump_keys(cursor.keys, cursor.message, limit)
        after = cursor.message
        while True:
            message, fence, pruned, lives, reached, more = await self.database.run(
                "dump", after, limit, MAX_PAGE_BYTES
            )
            after = int(reached)
            # Retention leaves long gaps.
            if lives or not more:
                break
        return StoreDump(
            StoreCounters(int(message), int(fence), int(pruned)),
            CopyCursor(None, after),
            lives=[decode_life(*life) for life in lives],
            results=copying_waits.decode_results(words for *_, words in lives),
            after=cursor.message,
            done=not lives,
        )

    async def dump_keys(self, cursor: str, message: int, limit: int) -> StoreDump:
        reply, found = await self.database.ask("HSCAN", "dedup", cursor or "0", "COUNT", limit)
        facts = await self.database.ask("HMGET", "fact", "message", "fence", "pruned")
        now = await self.database.now()
        keys = [decode_key(*pair) for pair in zip(found[::2], found[1::2], strict=True)]
        return StoreDump(
            StoreCounters(*(int(each or 0) for each in facts)),
            CopyCursor(None if reply == b"0" else reply.decode(), message),
            [key for key in keys if key.expires_at > now],
        )

    async def restore(self, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
        if page.keys:
            words = (word for key in page.keys for word in encode_key(key, queue_ids))
            await self.database.run("restore_keys", *words)
        counters = page.counters
        lives = [word for life in page.lives for word in encode_life(life, queue_ids)]
        rows = [
            (row, queue_ids[life.message.queue_id]) for life in page.lives for row in life.history
        ]
        # Retention reads history in the order of time.
        rows.sort(key=lambda each: (each[0].at, each[0].position))
        history = [word for row, queue_id in rows for word in encode_history(row, queue_id)]
        written: int = await self.database.run(
            "restore", counters.message, counters.fence, counters.pruned, len(page.lives), *lives,
            len(rows), *history, *copying_waits.encode_page(page), *find_gaps(page),
        )  # fmt: skip
        return written


def is_waiting(life: StoredLife, signalled: Container[int]) -> bool:
    if life.ticket is None:
        return False
    return bool(life.ticket.flags & (Flag.HELD | Flag.STEPS)) or life.message.id in signalled


def find_gaps(page: StoreDump) -> Iterator[int]:
    """Yields the first and the last of every long range of ids without messages."""
    before = page.after
    for life in page.lives:
        if life.message.id - before > MIN_GAP:
            yield before + 1
            yield life.message.id - 1
        before = life.message.id


def decode_key(field: bytes, text: bytes) -> StoredKey:
    queue, _, key = field.partition(b":")
    id, digest, expires_at = text.split(b" ")
    return StoredKey(
        int(queue, 16), key.decode(), int(id, 16), bytes.fromhex(digest.decode()), int(expires_at)
    )


def encode_key(key: StoredKey, queue_ids: Mapping[int, int]) -> tuple[Any, ...]:
    id = encode_id(key.id)
    text = b"%s %s %d" % (id, key.digest.hex().encode(), key.expires_at)
    unique = key.expires_at == NEVER and key.key.startswith(UNIQUE)
    field = make_field(queue_ids[key.queue_id], key.key)
    return field, text, key.expires_at, id if unique else b""


def decode_life(
    id: bytes, value: bytes, place: bytes, text: bytes, dead_ticket: bytes, due: bytes, head: bytes,
    until: bytes, result: bytes, rows: list[bytes], waits: list[bytes],
) -> StoredLife:  # fmt: skip
    rank = int(value.split(b" ", 2)[1], 16) - RANK_OFFSET
    ticket = decode_ticket(place.decode(), text, dead_ticket, due, bool(head)) if place else None
    return StoredLife(
        make_feed_message(id, value), rank, ticket,
        tuple(map(decode_history, rows[::3], rows[1::3], rows[2::3])),
        StoredResult(result, int(until)) if until else None,
        copying_waits.decode_waits(int(id, 16), waits) if waits else None,
    )  # fmt: skip


def decode_ticket(
    place: Any, text: bytes, dead_ticket: bytes, due: bytes, head: bool
) -> StoredTicket:
    """Decodes a ticket. Before it a lease has 4 fields, and a dead letter has 3."""
    fields = text.split(b" ", 4)[4] if place == "lease" else text
    dead_at = reason = error = None
    if place == "dead" or dead_ticket:
        dead_at, reason, error, ticket = decode_dead_ticket(dead_ticket or text)
        fields = fields if dead_ticket else ticket
    _, rank, attempts, deliveries, _, flags, _, _, position, _ = fields.split(b" ", 9)
    waits = place == "scheduled" and not due
    return StoredTicket(
        place, int(rank, 16) - RANK_OFFSET, int(attempts), int(deliveries), int(flags), head,
        NEVER if waits else decode_moment(due) if place == "scheduled" else None,
        None if position == NONE else int(position, 16), dead_at, reason, error,
    )  # fmt: skip


def decode_dead_ticket(text: bytes) -> tuple[int, str | None, str | None, bytes]:
    dead_at, reasons, errors, ticket = text.split(b" ", 3)
    *_, types, rest = ticket.split(b" ", 10)
    reason, error, _ = split_fields(rest[int(types) :], reasons, errors)
    return int(dead_at), reason, error, ticket


def encode_life(life: StoredLife, queue_ids: Mapping[int, int]) -> tuple[Any, ...]:
    message, ticket, result = life.message, life.ticket, life.result
    meta = message.meta
    queue_id = queue_ids[message.queue_id]
    name = b"" if meta.name is None else make_field(queue_id, meta.name)
    correlation = b"" if meta.correlation_id is None else digest_correlation(meta.correlation_id)
    return (
        encode_id(message.id), encode_message(life, queue_id), name, correlation,
        *(NO_TICKET if ticket is None else encode_ticket(life, ticket, queue_id)),
        b"" if result is None else result.expires_at, b"" if result is None else result.body,
    )  # fmt: skip


def encode_message(life: StoredLife, queue_id: int) -> bytes:
    message = life.message
    kind, meta = message.type.encode(), (encode_plain_meta(message.meta) or "").encode()
    return b"%d %014x %s %s %s %d %d %d %s%s%s" % (
        message.created_at, life.rank + RANK_OFFSET, encode_moment(message.run_at),
        encode_moment(message.expires_at), encode_queue_id(queue_id), message.priority, len(kind),
        len(meta), kind, meta, message.body,
    )  # fmt: skip


def encode_ticket(life: StoredLife, ticket: StoredTicket, queue_id: int) -> tuple[Any, ...]:
    """Encodes place, ticket, plain, due, head, reason and error."""
    message, meta = life.message, life.message.meta
    kind = message.type.encode()
    keyed = meta.ordering_key is not None and ticket.flags & Flag.KEYED
    waits = ticket.place == "scheduled" and ticket.due_at == NEVER
    text = b"%s %014x %d %d %d %d %s %s %s %d %s" % (
        encode_queue_id(queue_id), ticket.rank + RANK_OFFSET, ticket.attempts, ticket.deliveries,
        NEVER if message.expires_at is None else message.expires_at, ticket.flags,
        compute_digest(queue_id, meta.ordering_key or "") if keyed else NONE,
        encode_own_lease(meta, ticket.flags),
        encode_id(ticket.position) if waits and ticket.position is not None else NONE,
        len(kind), kind,
    )  # fmt: skip
    due = ticket.dead_at if ticket.place == "dead" else ticket.due_at
    return (
        ticket.place, text, int(is_plain(life, ticket)), "" if waits or due is None else due,
        int(ticket.head), encode_text(ticket.reason), encode_text(ticket.error),
    )  # fmt: skip


def is_plain(life: StoredLife, ticket: StoredTicket) -> bool:
    """True if the ticket follows from the message, and is not stored beside it."""
    counts = (ticket.attempts, ticket.deliveries, ticket.flags, life.message.expires_at)
    return counts == (0, 0, 0, None) and ticket.rank == life.rank


def encode_own_lease(meta: Meta, flags: int) -> bytes:
    return b"%d" % to_micros(meta.lease or 0) if flags & Flag.OWN_LEASE else NONE


def encode_moment(moment: int | None) -> bytes:
    return NONE if moment is None else b"%d" % moment


def encode_text(text: str | None) -> str:
    """Marks a present text, so that an empty one is not absent."""
    return "" if text is None else f"+{text}"


def encode_history(row: HistoryRow, queue_id: int) -> tuple[Any, ...]:
    reason, error = (None if text is None else text.encode() for text in (row.reason, row.error))
    queue = encode_queue_id(queue_id)
    lease = b""
    if row.fence is not None:
        lease = b"%d x %d 0 %s 0 %d %d %d 0 - - - 0 %s" % (
            row.fence, row.claimed_at or 0, queue, row.attempts, row.deliveries, NEVER,
            (row.consumer or "").encode(),
        )  # fmt: skip
    text = b"%s %s %d %s %d %d %s %s %s %s %s%s%s" % (
        row.verb.value.encode(), row.state.value.encode(), row.at, encode_moment(row.due_at),
        row.attempts, row.deliveries, encode_length(reason), encode_length(error),
        encode_id(row.id), queue, reason or b"", error or b"", lease,
    )  # fmt: skip
    return encode_id(row.id), text, row.traceback or ""


def encode_length(text: bytes | None) -> bytes:
    return NONE if text is None else b"%d" % len(text)
