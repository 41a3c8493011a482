"""Adds what the historian read to the stored rows, and makes one change of it."""

from collections.abc import Callable, Iterable
from typing import Any

from penstock.broker.metrics.rows import (
    ANOMALY,
    BACKLOG_HOUR,
    BACKLOG_MINUTES,
    CLAIM_SECONDS,
    CONSUMER_HOUR,
    MAX_ANOMALIES_PER_KIND,
    QUEUE_HOUR,
    QUEUE_MINUTES,
    STATE_KIND,
    STATE_NAME,
    WAIT_MINUTE,
    HistorianState,
    QueueTotals,
    decode_row,
    encode,
    find_hour,
    make_row_document,
    name_anomaly,
    name_backlog_hour,
    name_consumer_hour,
    name_queue_hour,
    read_rows,
)
from penstock.model.anomalies import AnomalyRow
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.metrics import HOUR_S, MINUTE_S, OTHER, BacklogHour, ConsumerHour, QueueHour
from penstock.rules.anomalies import (
    AnomalyKey,
    QueueRules,
    Seconds,
    add_anomaly,
    add_seconds,
    find_burst,
    find_in_hour,
    find_stuck,
    make_row,
)
from penstock.rules.histograms import add_histogram
from penstock.rules.metrics import Deltas, add_changes, add_consumer, add_hour, add_minutes
from penstock.store import Store

MAX_TYPES_PER_QUEUE = 20
MAX_SERIES, MAX_CONSUMERS = 5_000, 5_000
# Minutes of queues with a histogram of waits, in one hour.
MAX_WAIT_MINUTES = 60_000
# A minute that is older than this changes rarely or never.
WAITS_CACHED_S = 5 * MINUTE_S
# Rows kept in memory between changes.
MAX_CACHED_ROWS = 20_000

RulesOf = Callable[[int], QueueRules]


class MetricsAccumulator:
    """Rows of the current hours. After a change that was not accepted, everything is read again."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.state = HistorianState()
        self.version = 0
        self.rows: dict[tuple[str, str], Any] = {}
        # Rows that are not stored. Only a change of this version can add them.
        self.absent: set[tuple[str, str]] = set()
        # Queues and hours of which all types are in `rows`.
        self.loaded: set[tuple[int, int]] = set()
        self.changed: set[tuple[str, str]] = set()
        self.deleted: set[tuple[str, str]] = set()

    def open(self, state: HistorianState, version: int) -> None:
        """Begins at a state that another process wrote."""
        self.close()
        self.state, self.version = state, version

    def close(self) -> None:
        self.state, self.version = HistorianState(), 0
        for each in (self.rows, self.absent, self.loaded, self.changed, self.deleted):
            each.clear()

    async def find(self, kind: str, name: str) -> Any:
        key = (kind, name)
        if key in self.absent:
            return None
        if key not in self.rows:
            found = await self.store.document(kind, name)
            if found is None:
                self.absent.add(key)
                return None
            self.rows[key] = decode_row(found)
        return self.rows[key]

    def put(self, kind: str, name: str, row: object) -> None:
        self.rows[kind, name] = row
        self.absent.discard((kind, name))
        self.changed.add((kind, name))
        self.deleted.discard((kind, name))

    def drop(self, kind: str, name: str) -> None:
        self.rows.pop((kind, name), None)
        self.absent.add((kind, name))
        self.changed.discard((kind, name))
        self.deleted.add((kind, name))

    # Adding.

    async def add(self, deltas: Deltas, rules_of: RulesOf, at: int) -> None:
        for (queue_id, hour, type_), row in deltas.hours.items():
            await self.load_types(queue_id, hour)
            counted = self.choose_type(queue_id, hour, type_)
            name = name_queue_hour(queue_id, hour, counted)
            total: QueueHour = self.rows.get((QUEUE_HOUR, name)) or QueueHour([0] * len(row.counts))
            add_hour(total, row)
            self.put(QUEUE_HOUR, name, total)
            minutes = await self.find(QUEUE_MINUTES, name) or {}
            add_minutes(minutes, deltas.minutes[queue_id, hour, type_])
            self.put(QUEUE_MINUTES, name, minutes)
            rules = rules_of(queue_id)
            judged = find_in_hour((queue_id, hour, counted), total, rules, at)
            await self.replace_anomalies(judged, rules)
        await self.add_backlog(deltas)
        await self.add_waits(deltas)
        for key, worked in deltas.consumers.items():
            await self.add_consumer(key, worked, rules_of)

    async def load_types(self, queue_id: int, hour: int) -> None:
        if (queue_id, hour) in self.loaded:
            return
        first, last = name_backlog_hour(queue_id, hour), name_backlog_hour(queue_id, hour) + "0"
        for name, row in await read_rows(
            self.store, QUEUE_HOUR, first, last, MAX_TYPES_PER_QUEUE + 2
        ):
            self.rows.setdefault((QUEUE_HOUR, name), row)
        self.loaded.add((queue_id, hour))

    def choose_type(self, queue_id: int, hour: int, type_: str) -> str:
        """Returns the type to count under: `other` beyond the limits."""
        if (QUEUE_HOUR, name_queue_hour(queue_id, hour, type_)) in self.rows:
            return type_
        if not self.use(f"types of queue {queue_id}", hour, MAX_TYPES_PER_QUEUE):
            return OTHER
        if not self.use("series", hour, MAX_SERIES):
            return OTHER
        return type_

    def use(self, limit: str, hour: int, most: int) -> bool:
        """Counts one more under a limit of the hour. Returns False if it is exceeded."""
        key = f"{hour}/{limit}"
        used = self.state.used.get(key, 0)
        if used >= most:
            self.state.limited[limit] = hour
            return False
        self.state.used[key] = used + 1
        return True

    async def add_backlog(self, deltas: Deltas) -> None:
        for (queue_id, minute), changes in sorted(deltas.backlog.items()):
            hour = minute // 60 * HOUR_S
            name = name_backlog_hour(queue_id, hour)
            totals = self.state.totals.setdefault(queue_id, QueueTotals())
            row = await self.find(BACKLOG_HOUR, name)
            if row is None:
                row = BacklogHour(unfinished=totals.unfinished, dead=totals.dead)
            add_changes(row, changes)
            self.put(BACKLOG_HOUR, name, row)
            minutes = await self.find(BACKLOG_MINUTES, name) or {}
            known = minutes.get(minute % 60, [0, 0, 0])
            minutes[minute % 60] = [a + b for a, b in zip(known, changes, strict=True)]
            self.put(BACKLOG_MINUTES, name, minutes)
            self.shift_later(queue_id, hour, changes)
            totals.unfinished += changes[0] - changes[1]
            totals.dead += changes[2]

    async def add_waits(self, deltas: Deltas) -> None:
        for (queue_id, minute), waits in deltas.waits.items():
            name = name_backlog_hour(queue_id, minute * MINUTE_S)
            total = await self.find(WAIT_MINUTE, name)
            hour = minute // 60 * HOUR_S
            if total is None and not self.use("wait percentiles", hour, MAX_WAIT_MINUTES):
                continue
            total = total or {}
            add_histogram(total, waits)
            self.put(WAIT_MINUTE, name, total)

    def shift_later(self, queue_id: int, hour: int, changes: list[int]) -> None:
        """Corrects hours that began after a change that came late."""
        last = self.state.reached // 1_000_000
        for later in range(hour + HOUR_S, last + 1, HOUR_S):
            name = name_backlog_hour(queue_id, later)
            row: BacklogHour | None = self.rows.get((BACKLOG_HOUR, name))
            if row is not None:
                row.unfinished += changes[0] - changes[1]
                row.dead += changes[2]
                self.put(BACKLOG_HOUR, name, row)

    async def add_consumer(
        self, key: tuple[int, int, str], worked: ConsumerHour, rules_of: RulesOf
    ) -> None:
        hour, queue_id, consumer = key
        name = name_consumer_hour(hour, queue_id, consumer)
        total = await self.find(CONSUMER_HOUR, name)
        if total is None and not self.use("consumers", hour, MAX_CONSUMERS):
            consumer = OTHER
            name = name_consumer_hour(hour, queue_id, OTHER)
            total = await self.find(CONSUMER_HOUR, name)
        total = total or ConsumerHour()
        add_consumer(total, worked)
        self.put(CONSUMER_HOUR, name, total)
        seen = self.state.totals.setdefault(queue_id, QueueTotals())
        seen.worked_at = max(seen.worked_at, worked.last_at)
        rules = rules_of(queue_id)
        await self.replace_anomalies(find_stuck((hour, queue_id, consumer), total, rules), rules)

    async def add_claims(
        self, key: tuple[int, int, str], seconds: Seconds, rules: QueueRules
    ) -> None:
        name = name_consumer_hour(*key)
        total = await self.find(CLAIM_SECONDS, name) or {}
        add_seconds(total, seconds)
        self.put(CLAIM_SECONDS, name, total)
        await self.replace_anomalies(find_burst(key, total, rules), rules)

    async def add_anomalies(self, found: Iterable[AnomalyRow], rules_of: RulesOf) -> None:
        for row in found:
            known = await self.find(ANOMALY, name_anomaly(row))
            if known is not None:
                add_anomaly(known, row)
                self.put(ANOMALY, name_anomaly(row), known)
            elif self.has_room(row, rules_of(row.queue_id)):
                self.put(ANOMALY, name_anomaly(row), row)
            else:
                await self.add_to_rest(row)

    def has_room(self, row: AnomalyRow, rules: QueueRules) -> bool:
        limit = f"{row.kind} anomalies of scope {rules.scope}"
        return self.use(limit, row.hour, MAX_ANOMALIES_PER_KIND)

    async def add_to_rest(self, row: AnomalyRow) -> AnomalyRow:
        """Adds a case beyond the limit to the row `other` of its queue, and returns that row."""
        key: AnomalyKey = (row.hour, row.kind, row.queue_id, OTHER, OTHER)
        rest: AnomalyRow | None = await self.find(
            ANOMALY, name_anomaly(make_row(key, None, None, 0))
        )
        if rest is None:
            rest = row
            row.type = row.consumer = OTHER
        else:
            add_anomaly(rest, row)
        self.put(ANOMALY, name_anomaly(rest), rest)
        return rest

    async def replace_anomalies(
        self, found: dict[AnomalyKey, AnomalyRow | None], rules: QueueRules
    ) -> None:
        """Saves anomalies that were judged again from the whole hour. None removes one."""
        for key, row in found.items():
            name = name_anomaly(make_row(key, None, None, 0) if row is None else row)
            known: AnomalyRow | None = await self.find(ANOMALY, name)
            if row is None:
                if known is not None:
                    self.drop(ANOMALY, name)
            elif known is not None:
                row.first_at = min(row.first_at, known.first_at)
                row.last_at = max(row.last_at, known.last_at)
                self.put(ANOMALY, name, row)
            elif self.has_room(row, rules):
                self.put(ANOMALY, name, row)
            else:
                # It is judged again with the next case, so cases of an hour are not added up.
                count = row.count
                rest = await self.add_to_rest(row)
                rest.count = max(rest.count - count, count)

    # Writing.

    def make_change(self) -> Change:
        guard = Document(
            kind=STATE_KIND, name=STATE_NAME, body=encode(self.state), version=self.version
        )
        saves = [make_row_document(*key, self.rows[key]) for key in sorted(self.changed)]
        return Change(guards=(guard,), saves=tuple(saves), deletes=tuple(sorted(self.deleted)))

    def accept(self) -> None:
        """The change was written: the rows in memory are those that are stored."""
        self.version += 1
        self.changed.clear()
        self.deleted.clear()
        oldest = self.state.reached // 1_000_000 - 2 * HOUR_S
        if len(self.rows) + len(self.absent) > MAX_CACHED_ROWS:
            for each in (self.rows, self.absent, self.loaded):
                each.clear()
        latest = self.state.reached // 1_000_000 - WAITS_CACHED_S
        self.rows = {
            key: row for key, row in self.rows.items()
            if find_hour(*key) >= (latest if key[0] == WAIT_MINUTE else oldest)
        }  # fmt: skip
        self.loaded = {(queue_id, hour) for queue_id, hour in self.loaded if hour >= oldest}
        self.state.used = {
            key: used for key, used in self.state.used.items()
            if int(key.partition("/")[0]) >= oldest
        }  # fmt: skip
        self.state.limited = {
            name: hour for name, hour in self.state.limited.items() if hour >= oldest - 22 * HOUR_S
        }
