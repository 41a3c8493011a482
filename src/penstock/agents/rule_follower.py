"""Fires rules on the ends of messages, once per end.

A quick pass reads recent history and leaves a document for each end that fired something. The
sure pass follows the final feed, fires what the quick pass missed, and drops those documents.
"""

from collections.abc import Iterable, Sequence

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from penstock.broker.documents import list_documents
from penstock.broker.queue_cache import QueueCache
from penstock.broker.rule_ends import EndEvaluation, has_rules, is_end
from penstock.errors import CannotGovern
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.message import HistoryRow, Record
from penstock.model.routing import FIRED, RULE_CURSOR, RULE_CURSOR_NAME
from penstock.model.store_types import Cursor, Entry
from penstock.runner import report
from penstock.store import Store

QUICK_ROWS = 2_000
SURE_ROWS = 500
# Ends whose messages are written in one step.
MAX_FIRED = 100
HOLD = "agent:rules"
decode_cursor = msgspec.json.Decoder(Cursor).decode
encode = msgspec.json.Encoder().encode
log: FilteringBoundLogger = structlog.get_logger()


class FiredEnd(Struct, frozen=True):
    """An end that rules fired on, and the messages that they publish."""

    position: int
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """The name of the document that says that it fired."""
        return f"{self.position:020}"


class RuleFollower:
    name = "rule_follower"
    every = 0.5

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by
        # Up to here, the quick pass has looked at recent history.
        self.seen = 0

    async def tick(self) -> float:
        """Does nothing unless a rule on an end was ever saved."""
        stored = await self.store.document(RULE_CURSOR, RULE_CURSOR_NAME)
        if stored is None:
            return self.every
        await self.directory.refresh()
        try:
            quick = await self._look_quickly(stored)
            sure, more = await self._look_surely()
        except CannotGovern as error:
            log.error("rules_not_followed", error=str(error))
            return self.every
        if quick or sure:
            await self._report({"quick": quick, "sure": sure})
        return 0.0 if more else self.every

    async def _report(self, counts: dict[str, int]) -> None:
        if await self.store.claim_tick(self.name, self.every, self.by):
            await self.store.end_tick(self.name, self.by, report(counts))

    async def _look_quickly(self, stored: Document) -> int:
        """Fires on recent ends that the sure pass has not reached. It may miss some."""
        if not self.directory.policy.rules.on_ends:
            return 0
        cursor = decode_cursor(stored.body)
        rows = await self.store.recent(max(self.seen, cursor.history), QUICK_ROWS)
        fired = await self._evaluate(rows, await self._read_fired())
        expects = ((RULE_CURSOR, RULE_CURSOR_NAME, stored.version or 0),)
        count = 0
        for start in range(0, len(fired), MAX_FIRED):
            part = fired[start : start + MAX_FIRED]
            guards = tuple(Document(kind=FIRED, name=each.name, body=b"1", version=0)
                           for each in part)  # fmt: skip
            entries = tuple(entry for each in part for entry in each.entries)
            change = Change(guards=guards, expects=expects, entries=entries)
            if not await self._write(change):
                # Another process was faster; the sure pass does the rest.
                return count
            count += len(part)
        if rows:
            self.seen = rows[-1].position
        return count

    async def _look_surely(self) -> tuple[int, bool]:
        """Returns how many ends fired, and whether there is more to read."""
        stored = await self.store.document(RULE_CURSOR, RULE_CURSOR_NAME)
        if stored is None:
            return 0, False
        cursor = decode_cursor(stored.body)
        page = await self.store.heads(cursor, SURE_ROWS)
        if page.cursor == cursor:
            return 0, False
        done = await self._read_fired()
        fired = await self._evaluate(page.history, done)
        passed = [name for name in done if int(name) <= page.cursor.history]
        guard = replace(stored, body=encode(page.cursor))
        change = Change(
            guards=(guard,),
            expects=tuple((FIRED, each.name, 0) for each in fired),
            deletes=tuple((FIRED, name) for name in passed),
            entries=tuple(entry for each in fired for entry in each.entries),
        )
        if not await self._write(change):
            return 0, False
        await self.store.save_cursor(HOLD, page.cursor)
        return len(fired), True

    async def _write(self, change: Change) -> bool:
        """Returns False if a guard differed, or an entry was made from old subscriptions."""
        changed = await self.store.advance(change)
        if changed is not None and changed.written:
            return True
        self.directory.forget()
        return False

    async def _read_fired(self) -> set[str]:
        return {each.name for each in await list_documents(self.store, FIRED)}

    async def _evaluate(self, rows: Iterable[HistoryRow], done: set[str]) -> list[FiredEnd]:
        """Evaluates the ends that have not fired yet."""
        policy, by_id = self.directory.policy, self.directory.by_id
        ends = [
            row
            for row in rows
            if is_end(row)
            and f"{row.position:020}" not in done
            and has_rules(policy, row, by_id.get(row.queue_id))
        ]
        records = await self._read_messages(ends)
        fired = []
        for row in ends:
            record = records.get(row.id)
            if record is None:
                log.warning("rule_message_gone", id=row.id, position=row.position)
                continue
            evaluation = EndEvaluation(policy, row, record, by_id[row.queue_id])
            if entries := evaluation.evaluate():
                fired.append(FiredEnd(row.position, tuple(entries)))
        return fired

    async def _read_messages(self, rows: Sequence[HistoryRow]) -> dict[int, Record]:
        ids = list(dict.fromkeys(row.id for row in rows))
        found = await self.store.get_many(ids) if ids else []
        return {record.message.id: record for record in found}
