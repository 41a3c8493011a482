"""Reads history and audit log as one list: backwards in pages, or forwards as it grows."""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.model.activity import ActivityEntry, ActivityPage
from penstock.model.documents import AuditEntry
from penstock.model.filter import Node
from penstock.model.message import CLOCK_SLACK_MICROS, MAX_POSITION, NEVER, HistoryRow, Moment
from penstock.model.queue import Queue
from penstock.rules.events import make_act_entry, make_candidate, make_history_entry
from penstock.rules.filter_match import matches
from penstock.rules.masking import MASKED
from penstock.store import Store

MAX_SCANNED = 20_000
MAX_WORK_S = 0.5
# Positions of history and audit entries that are read at once.
WINDOW_SIZE = 500
ACTS = 100
LOOK_BACK = 500
Visible = Callable[[AuditEntry], bool]


class ActivityQuery(Struct, frozen=True):
    """Selects activity. `kinds` are kinds of live events, or `act`; none selects all."""

    filter: str = ""
    kinds: tuple[str, ...] = ()
    since: Moment = 0
    until: Moment = NEVER


class Selection(Struct, frozen=True):
    """The filters of a request, and the queues and acts that the caller may see."""

    query: ActivityQuery
    node: Node
    tenant: str
    queues: Mapping[int, Queue]
    # Queues whose errors are masked.
    hidden: Collection[int]
    # None reads no audit log at all.
    acts: Visible | None

    def accepts(self, entry: ActivityEntry) -> bool:
        query = self.query
        return (
            (not query.kinds or entry.kind in query.kinds)
            and query.since <= entry.at < query.until
            and matches(self.node, make_candidate(entry))
        )

    def sees_act(self, act: AuditEntry) -> bool:
        return self.acts is not None and act.tenant == self.tenant and self.acts(act)

    async def make_entries(self, store: Store, rows: Collection[HistoryRow]) -> list[ActivityEntry]:
        """Makes entries of the rows whose queues the caller may read."""
        seen = [row for row in rows if row.queue_id in self.queues]
        headings = await store.headings(list({row.id for row in seen}))
        return [
            make_history_entry(
                replace(row, error=row.error and MASKED) if row.queue_id in self.hidden else row,
                self.queues[row.queue_id],
                headings.get(row.id),
            )
            for row in seen
        ]


class ActivityCursor(Struct, frozen=True):
    """The position of the next page: before this history row and this audit entry."""

    history: int
    act: int = NEVER

    def encode(self) -> str:
        return f"{self.history}.{self.act}"


def decode_cursor(text: str) -> ActivityCursor:
    history, dot, act = text.partition(".")
    numbers = [part for part in (history, act) if part.isascii() and part.isdecimal()]
    if not dot or len(numbers) != 2 or max(map(len, numbers)) > 19:
        raise InvalidInput(f"{text[:60]!r} is not a cursor of the activity list")
    return ActivityCursor(int(history), int(act))


class BackwardReading:
    """Merges history and acts, newest first, for one page.

    Each of them is read in the order of its positions, so that no entry is lost or repeated
    whatever its time is.
    """

    def __init__(self, store: Store, selection: Selection, start: ActivityCursor) -> None:
        self.store = store
        self.selection = selection
        # Everything below these is unread.
        self.history_floor = start.history
        self.act_floor = 0 if selection.acts is None else start.act
        # Read, and not yet in the page.
        self.rows: list[ActivityEntry] = []
        self.acts: list[ActivityEntry] = []
        self.scanned = 0
        self.width = WINDOW_SIZE
        self.oldest = selection.query.since - CLOCK_SLACK_MICROS
        self.stop_at = time.monotonic() + MAX_WORK_S

    async def run(self, limit: int) -> ActivityPage:
        entries: list[ActivityEntry] = []
        scanned_to: Moment | None = None
        while len(entries) < limit:
            whole = await self.fill()
            entry = self.take() if whole else None
            if entry is None:
                return ActivityPage(entries, None if whole else self.cursor, scanned_to)
            scanned_to = entry.at
            if self.selection.accepts(entry):
                entries.append(entry)
        return ActivityPage(entries, self.cursor, scanned_to)

    @property
    def cursor(self) -> str:
        history = self.rows[0].position + 1 if self.rows else self.history_floor
        act = self.acts[0].position + 1 if self.acts else self.act_floor
        return ActivityCursor(history, act).encode()

    def take(self) -> ActivityEntry | None:
        heads = [each for each in (self.rows, self.acts) if each]
        if not heads:
            return None
        return max(heads, key=lambda each: each[0].order).pop(0)

    async def fill(self) -> bool:
        """Reads on until both have an entry or are at their end. False if there is no time."""
        while not self.rows and self.history_floor > 1:
            if self.is_over():
                return False
            await self.read_window()
        while not self.acts and self.act_floor > 1:
            if self.is_over():
                return False
            await self.read_acts()
        return True

    def is_over(self) -> bool:
        """A page reads at least one window, so that every call makes progress."""
        return self.scanned > 0 and (
            self.scanned >= MAX_SCANNED or time.monotonic() >= self.stop_at
        )

    async def read_window(self) -> None:
        low = max(0, self.history_floor - 1 - self.width)
        rows = await self.store.past(self.history_floor, low, WINDOW_SIZE)
        self.history_floor = rows[-1].position if len(rows) == WINDOW_SIZE else low + 1
        # Retention leaves gaps, which are crossed in ever longer steps.
        self.width = WINDOW_SIZE if rows else 2 * self.width
        self.scanned += max(1, len(rows))
        if rows and max(row.at for row in rows) < self.oldest:
            self.history_floor = 0
            return
        self.rows = await self.selection.make_entries(self.store, rows)

    async def read_acts(self) -> None:
        acts = await self.store.acts(self.selection.tenant, self.act_floor, ACTS)
        over = len(acts) < ACTS or acts[-1].at < self.oldest
        self.act_floor = 0 if over else acts[-1].id
        self.scanned += max(1, len(acts))
        self.acts = [make_act_entry(act) for act in acts if self.selection.sees_act(act)]


class ActReader:
    """Reads new entries of the audit log, also those that are committed late."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.top = 0
        self.seen: set[int] = set()

    async def start(self) -> None:
        """Skips what happened before."""
        newest = await self.store.acts(None, NEVER, 1)
        self.top = newest[0].id if newest else 0
        await self.read()

    async def read(self) -> list[AuditEntry]:
        found = await self.store.acts_after(max(0, self.top - ACTS), 2 * ACTS)
        fresh = [act for act in found if act.id not in self.seen]
        self.top = max([self.top, *(act.id for act in found)])
        self.seen = {act.id for act in found}
        return fresh


class ForwardReading:
    """Reads what is new, and rows that were committed late."""

    def __init__(self, store: Store, selection: Selection, end: int) -> None:
        self.store = store
        self.selection = selection
        self.top = end
        self.seen: set[int] = set()
        self.act_reader = ActReader(store)

    async def start(self) -> None:
        """Skips what happened before."""
        if self.selection.acts is not None:
            await self.act_reader.start()
        await self.read()

    async def read(self) -> list[ActivityEntry]:
        rows = await self.store.recent(max(0, self.top - LOOK_BACK), 2 * LOOK_BACK)
        fresh = [row for row in rows if row.position not in self.seen]
        entries = await self.selection.make_entries(self.store, fresh)
        acts = await self.read_acts()
        entries += [make_act_entry(act) for act in acts]
        self.top = max([self.top, *(row.position for row in rows)])
        self.seen = {row.position for row in rows}
        entries = [entry for entry in entries if self.selection.accepts(entry)]
        return sorted(entries, key=lambda entry: entry.order)

    async def read_acts(self) -> list[AuditEntry]:
        if self.selection.acts is None:
            return []
        return [act for act in await self.act_reader.read() if self.selection.sees_act(act)]


async def find_last(any_after: Callable[[int], Awaitable[bool]], high: int = MAX_POSITION) -> int:
    """Finds the last number that there is by halving, because no store keeps it."""
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        if await any_after(middle):
            low = middle
        else:
            high = middle
    return high
