"""Reads history for the export and takes the census."""

from collections import Counter

from penstock.errors import InvalidState
from penstock.model.heads import DigestBounds, EarlierRow, FeedDigest, FeedHead, HeadFeed
from penstock.model.message import TICKET_PLACES, FeedMessage, HistoryRow, Moment
from penstock.model.store_types import Cursor, Exported, Feed, PlaceCount
from penstock.rules.digests import make_digest
from penstock.stores.redis.codec import decode_history, make_feed_message
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.sql.upkeep import AGENT_PREFIX

SIZES = {
    "ready": ("ZCARD", "ready"), "scheduled": ("ZCARD", "scheduled"), "lease": ("HLEN", "lease"),
    "dead": ("ZCARD", "dead_line"),
}  # fmt: skip
# History rows read per script.
PAGE_SIZE = 1_000
# Messages counted per script, which bounds how long other clients wait.
COUNTED = 200
# Rows of each kind per script of the feed without bodies.
HEADS_PER_SCRIPT = 500


class RedisExport:
    def __init__(self, database: RedisDatabase) -> None:
        self.database = database

    async def feed(self, cursor: Cursor, limit: int, known: Cursor | None = None) -> Feed:
        """Returns all rows: scripts run one at a time, so ids are in commit order."""
        after = cursor.message
        while True:
            epoch, found, last, more, rows = await self.database.run(
                "feed", after, cursor.history, limit
            )
            after = int(last)
            # Retention leaves long gaps.
            if found or rows or not more:
                break
        refuse_foreign(cursor, int(epoch))
        history = [decode_history(*pair) for pair in zip(rows[::2], rows[1::2], strict=True)]
        return Feed(
            [make_feed_message(*pair) for pair in zip(found[::2], found[1::2], strict=True)],
            history,
            Cursor(int(epoch), after, history[-1].position if history else cursor.history),
        )

    async def frontier(self) -> int:
        return int(await self.database.ask("HGET", "fact", "message") or 0) + 1

    async def heads(self, cursor: Cursor, limit: int) -> HeadFeed:
        page = limit if limit < HEADS_PER_SCRIPT else HEADS_PER_SCRIPT
        while True:
            epoch, found, last, more, rows, others, earlier = await self.database.run(
                "heads", cursor.message, cursor.history, page
            )
            cursor = Cursor(cursor.epoch, int(last), cursor.history)
            if found or rows or not more:
                break
        refuse_foreign(cursor, int(epoch))
        history = [decode_history(*pair) for pair in zip(rows[::2], rows[1::2], strict=True)]
        messages = decode_heads(found)
        return HeadFeed(
            messages,
            history,
            {head.id: head for head in (*messages, *decode_heads(others))},
            decode_rests(earlier),
            Cursor(int(epoch), int(last), history[-1].position if history else cursor.history),
        )

    async def digest(self, cursor: Cursor, limit: int, bounds: DigestBounds) -> FeedDigest:
        return make_digest(await self.heads(cursor, limit), bounds)

    async def recent(
        self, after: int, limit: int, beyond: Cursor | None = None
    ) -> list[HistoryRow]:
        begin = f"({max(after, beyond.history if beyond else 0)}-0"
        entries = await self.database.ask("XRANGE", "history", begin, "+", "COUNT", limit)
        return [decode_row(*entry) for entry in entries]

    async def past(self, before: int, after: int, limit: int) -> list[HistoryRow]:
        bounds = f"({before}-0", f"({after}-0"
        entries = await self.database.ask("XREVRANGE", "history", *bounds, "COUNT", limit)
        return [decode_row(*entry) for entry in entries]

    async def census(self) -> list[PlaceCount]:
        """Counts in pages, so that other clients do not wait long.

        It is a snapshot if nothing moves meanwhile. Otherwise it counts the messages that existed
        at the start: none twice, and none that stayed in its place is left out.
        """
        before = await self.version()
        tallies = await self.count(*before[:2])
        if await self.version() == before:
            tallies += await self.strays(tallies)
        return tallies

    async def version(self) -> tuple[int, ...]:
        """Returns the last message and row, and counters that every move changes."""
        facts = await self.database.ask("HMGET", "fact", "message", "position", "fence")
        promoted, pruned = (
            await self.database.ask("ZCARD", "scheduled"),
            await self.database.ask("HLEN", "message"),
        )
        return *(int(each or 0) for each in facts), promoted, pruned

    async def count(self, last: int, last_row: int) -> list[PlaceCount]:
        counts: Counter[bytes] = Counter()
        digests: Counter[bytes] = Counter()
        at, row = 0, 0
        while (at, row) != (last, last_row):
            after, after_row, found = await self.database.run(
                "census", at, row, last, last_row, COUNTED
            )
            at, row = int(after), int(after_row)
            for key, count, digest in found:
                counts[key] += count
                digests[key] += digest
        return [make_tally(key, counts[key], digests[key]) for key in sorted(counts)]

    async def strays(self, tallies: list[PlaceCount]) -> list[PlaceCount]:
        """Counts entries without a message as queue 0; a sound store has none."""
        counts: Counter[str] = Counter()
        for each in tallies:
            counts[each.place] += each.count
        sizes = [(place, await self.database.ask(*words)) for place, words in SIZES.items()]
        return [
            PlaceCount(0, place, size - counts[place], 0)
            for place, size in sizes
            if size != counts[place]
        ]

    async def depths(self, ended: int) -> dict[tuple[int, str], int]:
        queues = await self.database.ask("HKEYS", "queue")
        counts: Counter[tuple[int, str]] = Counter()
        for queue, found in zip(queues, await self.database.run("depths", *queues), strict=True):
            for place, count in zip(TICKET_PLACES, found, strict=True):
                counts[int(queue, 16), place] += count
        for row in await self.last_ended(ended):
            counts[row.queue_id, row.state.value] += 1
        return {key: count for key, count in counts.items() if count}

    async def waiting_since(self) -> dict[int, Moment]:
        queues = await self.database.ask("HKEYS", "queue")
        found = await self.database.run("waiting_since", *queues)
        return {int(q, 16): int(since) for q, since in zip(queues, found, strict=True) if since}

    async def last_ended(self, count: int) -> list[HistoryRow]:
        found: list[HistoryRow] = []
        before = "+"
        while len(found) < count:
            entries = await self.database.ask(
                "XREVRANGE", "history", before, "-", "COUNT", PAGE_SIZE
            )
            if not entries:
                break
            found += [row for row in (decode_row(*entry) for entry in entries) if row.final]
            before = f"({entries[-1][0].decode()}"
        return found[:count]

    async def save_cursor(self, name: str, cursor: Cursor) -> None:
        text = f"{cursor.epoch} {cursor.message} {cursor.history}"
        await self.database.run("save_cursor", name, text)

    async def cursors(self) -> dict[str, Exported]:
        found = await self.all_cursors()
        return {name: each for name, each in found.items() if not name.startswith(AGENT_PREFIX)}

    async def all_cursors(self) -> dict[str, Exported]:
        found = {}
        for name, text in sorted((await self.database.pairs("cursor")).items()):
            epoch, message, history, advanced_at = map(int, text.split(b" "))
            found[name.decode()] = Exported(Cursor(epoch, message, history), advanced_at)
        return found


def decode_heads(words: list[bytes]) -> list[FeedHead]:
    """Decodes id, value without body, and size of the body of each."""
    return [
        make_message_head(make_feed_message(id, value), int(size))
        for id, value, size in zip(words[::3], words[1::3], words[2::3], strict=True)
    ]


def make_message_head(message: FeedMessage, size: int) -> FeedHead:
    return FeedHead(
        message.id, message.queue_id, message.type, message.created_at, message.run_at, size,
        message.meta.max_attempts, message.meta.lease,
    )  # fmt: skip


def decode_rests(words: list[bytes]) -> dict[int, list[EarlierRow]]:
    found: dict[int, list[EarlierRow]] = {}
    for pair in zip(words[::2], words[1::2], strict=True):
        row = decode_history(*pair)
        rest = EarlierRow(
            row.position, row.verb, row.state, row.error, row.consumer, row.at, row.due_at
        )  # fmt: skip
        found.setdefault(row.id, []).append(rest)
    return found


def make_tally(key: bytes, count: int, digest: int) -> PlaceCount:
    queue, place = key.decode().split(" ")
    return PlaceCount(int(queue, 16), place, count, digest)


def decode_row(position: bytes, fields: list[bytes]) -> HistoryRow:
    return decode_history(position.partition(b"-")[0], fields[1])


def refuse_foreign(cursor: Cursor, epoch: int) -> None:
    if cursor.epoch > epoch:
        raise InvalidState(
            f"the cursor is from epoch {cursor.epoch}, the store is in {epoch};"
            " it may belong to another store"
        )
