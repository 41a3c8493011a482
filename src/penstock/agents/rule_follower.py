"""Fires rules on the ends of messages, once per end.

The sure pass follows the final feed. Where an open transaction holds it back, a quick pass reads
recent history and leaves a document for each end that fired; the sure pass drops it later.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from penstock.broker.queue_cache import QueueCache
from penstock.broker.routing.ends import EndEvaluation, has_rules, is_end
from penstock.errors import CannotGovern
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.message import MAX_POSITION, HistoryRow, Record
from penstock.model.routing import FIRED, RULE_CURSOR, RULE_CURSOR_NAME
from penstock.model.store_types import Cursor, Entry
from penstock.runner import report
from penstock.store import Store

# Rows of history that one pass reads, and writes the messages of in one step.
MAX_ROWS = 500
DOCUMENTS_PER_PAGE = 1_000
# How often it looks whether a first rule on an end was saved.
UNUSED_INTERVAL_S = 2.0
HOLD = "agent:rules"
# The feed was read on, had nothing new, or another process read it at the same time. That one
# goes on; two that try again at once would only hinder each other.
PassOutcome = Literal["moved", "idle", "lost"]
decode_cursor = msgspec.json.Decoder(Cursor).decode
encode = msgspec.json.Encoder().encode
log: FilteringBoundLogger = structlog.get_logger()


class FiredEnd(Struct, frozen=True):
    """An end that rules fired on, and the messages that they publish."""

    position: int
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        return make_name(self.position)


def list_entries(fired: Sequence[FiredEnd]) -> tuple[Entry, ...]:
    return tuple(entry for each in fired for entry in each.entries)


def make_name(position: int) -> str:
    """Returns the name of the document that says that an end fired. Names sort by position."""
    return f"{position:020}"


class RuleFollower:
    name = "rule_follower"
    every = 0.5

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by
        # Up to here, the quick pass has looked at recent history; None before its first look.
        self.seen: int | None = None

    async def tick(self) -> float:
        """Does nothing unless a rule on an end was ever saved."""
        if await self.store.document(RULE_CURSOR, RULE_CURSOR_NAME) is None:
            return UNUSED_INTERVAL_S
        await self.directory.refresh()
        try:
            sure, outcome = await self._look_surely()
            # Usually the sure pass has read everything, unless a long transaction holds it back.
            quick = await self._look_quickly() if outcome == "idle" else 0
        except CannotGovern as error:
            log.error("rule_follower_failed", error=str(error))
            return self.every
        if quick or sure:
            await self._report({"quick": quick, "sure": sure})
        return 0.0 if outcome == "moved" else self.every

    async def _report(self, counts: dict[str, int]) -> None:
        if await self.store.claim_tick(self.name, self.every, self.by):
            await self.store.end_tick(self.name, self.by, report(counts))

    async def _look_quickly(self) -> int:
        """Fires on recent ends that the sure pass has not reached. It may miss some."""
        stored = await self.store.document(RULE_CURSOR, RULE_CURSOR_NAME)
        if stored is None or not self.directory.policy.rules.on_ends:
            return 0
        if self.seen is None:
            self.seen = await self._find_start()
        rows = await self.store.recent(self.seen, MAX_ROWS, decode_cursor(stored.body))
        fired = await self._evaluate(rows, await self._read_fired(rows))
        if rows:
            self.seen = rows[-1].position
        saves = tuple(Document(kind=FIRED, name=each.name, body=b"1") for each in fired)
        # The cursor stays, but its version moves: of two passes at once, one writes.
        change = Change(guards=(stored,), saves=saves, entries=list_entries(fired))
        if not fired or not await self._write(change):
            return 0
        return len(fired)

    async def _find_start(self) -> int:
        """Returns a position shortly before the newest row. The sure pass reads what is older."""
        newest = await self.store.past(MAX_POSITION, 0, 1)
        return max(0, newest[0].position - MAX_ROWS) if newest else 0

    async def _look_surely(self) -> tuple[int, PassOutcome]:
        """Returns how many ends fired."""
        stored = await self.store.document(RULE_CURSOR, RULE_CURSOR_NAME)
        if stored is None:
            return 0, "idle"
        cursor = replace(decode_cursor(stored.body), message=MAX_POSITION)
        page = await self.store.heads(cursor, MAX_ROWS)
        if page.cursor == cursor:
            return 0, "idle"
        done = await self._read_fired(page.history)
        fired = await self._evaluate(page.history, done)
        guard = replace(stored, body=encode(page.cursor))
        passed = done & {make_name(row.position) for row in page.history}
        change = Change(
            guards=(guard,),
            deletes=tuple((FIRED, name) for name in sorted(passed)),
            entries=list_entries(fired),
        )
        if not await self._write(change):
            return 0, "lost"
        await self.store.save_cursor(HOLD, page.cursor)
        return len(fired), "moved"

    async def _write(self, change: Change) -> bool:
        """Returns False if a guard differed, or an entry was made from old subscriptions."""
        changed = await self.store.advance(change)
        if changed is not None and changed.written:
            return True
        self.directory.forget()
        return False

    async def _read_fired(self, rows: Sequence[HistoryRow]) -> set[str]:
        """Returns the names of the ends among these rows that the quick pass fired on."""
        if not rows:
            return set()
        positions = [row.position for row in rows]
        after, last = make_name(min(positions) - 1), make_name(max(positions))
        found: set[str] = set()
        while page := await self.store.documents(FIRED, after, DOCUMENTS_PER_PAGE):
            found.update(each.name for each in page if each.name <= last)
            after = page[-1].name
            if after >= last or len(page) < DOCUMENTS_PER_PAGE:
                break
        return found

    async def _evaluate(self, rows: Iterable[HistoryRow], done: set[str]) -> list[FiredEnd]:
        """Evaluates the ends that have not fired yet."""
        policy, by_id = self.directory.policy, self.directory.by_id
        ends = [
            row
            for row in rows
            if is_end(row)
            and make_name(row.position) not in done
            and has_rules(policy, row, by_id.get(row.queue_id))
        ]
        records = await self._read_messages(ends)
        fired = []
        for row in ends:
            record = records.get(row.id)
            if record is None:
                log.warning("rule_message_missing", id=row.id, position=row.position)
                continue
            evaluation = EndEvaluation(policy, row, record, by_id[row.queue_id])
            if entries := evaluation.evaluate():
                fired.append(FiredEnd(row.position, tuple(entries)))
        return fired

    async def _read_messages(self, rows: Sequence[HistoryRow]) -> dict[int, Record]:
        ids = list(dict.fromkeys(row.id for row in rows))
        found = await self.store.get_many(ids) if ids else []
        return {record.message.id: record for record in found}
