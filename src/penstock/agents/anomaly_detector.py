"""Notices what history does not show: stolen locks, loops, missing consumers, stalled readers."""

from collections import Counter

from penstock.broker.anomalies import make_case, record_anomalies
from penstock.broker.liveness import is_gone
from penstock.broker.metrics.rows import HistorianState, QueueTotals, read_state
from penstock.broker.queue_cache import QueueCache
from penstock.model.anomalies import AnomalyRow
from penstock.model.message import MICROS_PER_SECOND, Record, State
from penstock.model.queue import Queue, QueueState
from penstock.model.routing import StoredRule
from penstock.model.store_types import Lock, Query, WorkerInfo
from penstock.rules.anomalies import get_patience
from penstock.rules.globs import match_glob
from penstock.runner import report
from penstock.store import Store

# An export without progress, and history that readers of the feed cannot see, in seconds.
EXPORT_STALLED_S, FEED_STALLED_S = 86_400, 60
# Work waits at least this long, and two leases, before a consumer is missed.
# Beyond this number, the oldest are dropped.
MAX_UNRECORDED = 1_000


class AnomalyDetector:
    name = "anomaly_detector"
    every = 10.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by
        # Cases that could not be recorded; the next tick tries again.
        self.unrecorded: list[AnomalyRow] = []

    async def tick(self) -> float:
        self.unrecorded += await self.find_stolen(self.directory.lost_locks.take())
        self.unrecorded += await self.find_loops(self.directory.policies.rules.monitor.take_loops())
        watched = [
            *await self.find_unserved(),
            *await self.find_stalled_exports(),
            *await self.find_stalled_feed(),
            *await self.find_suspended_rules(),
        ]
        # One process records what all of them see.
        if watched and await self.store.claim_tick(self.name, 60.0, self.by):
            self.unrecorded += watched
            await self.store.end_tick(self.name, self.by, report({"anomalies": len(watched)}))
        self.unrecorded = self.unrecorded[-MAX_UNRECORDED:]
        await record_anomalies(self.store, self.directory, self.unrecorded)
        self.unrecorded = []
        return self.every

    async def find_stolen(self, locks: list[Lock]) -> list[AnomalyRow]:
        """Finds refused settles of messages that another consumer got."""
        if not locks:
            return []
        now = await self.store.now()
        records = {each.message.id: each for each in await self.store.get_many(
            list({lock.id for lock in locks})
        )}  # fmt: skip
        counts: Counter[tuple[int, str, int]] = Counter()
        for lock in locks:
            record = records.get(lock.id)
            if record is not None and (consumer := find_loser(record, lock.fence)) is not None:
                counts[record.message.queue_id, consumer, lock.id] += 1
        rows = []
        for (queue_id, consumer, id), count in counts.items():
            if self.allows(queue_id, "lock_stolen"):
                row = make_case(
                    "lock_stolen", now, queue_id=queue_id, consumer=consumer, count=count
                )
                row.message_id = id
                rows.append(row)
        return rows

    async def find_loops(self, loops: dict[tuple[str, int], int]) -> list[AnomalyRow]:
        """Finds rules that would have fired again for a message that they had routed."""
        if not loops:
            return []
        now = await self.store.now()
        return [
            make_case("routing_loop", now, queue_id=queue_id, consumer=rule, count=count)
            for (rule, queue_id), count in loops.items()
            if self.allows(queue_id, "routing_loop")
        ]

    async def find_suspended_rules(self) -> list[AnomalyRow]:
        """Finds suspended rules. Each is reported at the first queue that it concerns."""
        await self.directory.refresh()
        loader = self.directory.policies.rules
        stored_rules = [each.stored for each in loader.compiled.values()]
        await loader.check_rights(stored_rules, self.directory.by_name)
        if loader.monitor.pending:
            await self.directory.refresh()
        now, rows = await self.store.now(), []
        for stored in self.directory.policy.rules.suspended:
            queue = self.find_first_queue(stored) if stored.rule.enabled else None
            if queue is not None and self.allows(queue.id, "rule_suspended"):
                name = stored.rule.name
                note = stored.suspended
                rows.append(
                    make_case("rule_suspended", now, queue_id=queue.id, consumer=name, note=note)
                )
        return rows

    def find_first_queue(self, stored: StoredRule) -> Queue | None:
        """Returns the first queue of a rule by name, so that every process finds the same."""
        place = (stored.tenant, stored.rule.scope)
        found = [
            queue
            for (tenant, scope, name), queue in self.directory.by_name.items()
            if (tenant, scope) == place and not queue.system and match_glob(stored.rule.queue, name)
        ]
        return min(found, key=lambda queue: queue.name, default=None)

    def allows(self, queue_id: int, kind: str) -> bool:
        queue = self.directory.by_id.get(queue_id)
        return queue is None or queue.settings.anomalies.allows(kind)

    async def find_unserved(self) -> list[AnomalyRow]:
        """Finds queues with ready messages that no consumer claims."""
        now, rows = await self.store.now(), []
        waiting = await self.store.waiting_since()
        workers: list[WorkerInfo] | None = None
        state: HistorianState | None = None
        for queue_id, since in waiting.items():
            queue = await self.find_watched(queue_id)
            if queue is None or now - since < get_patience(queue):
                continue
            if state is None or workers is None:
                state, _ = await read_state(self.store)
                workers = [each for each in await self.store.workers() if not is_gone(each, now)]
            worked_at = state.totals.get(queue_id, QueueTotals()).worked_at
            if now - worked_at < get_patience(queue) or any(each.serves(queue) for each in workers):
                continue
            claimed = Query((queue_id,), State.CLAIMED, limit=1)
            if not await self.store.find(claimed):
                waited = (now - since) / MICROS_PER_SECOND
                rows.append(make_case("no_consumer", now, queue_id=queue_id, value=waited))
        return rows

    async def find_watched(self, queue_id: int) -> Queue | None:
        """Returns the queue if it is active and reports missing consumers."""
        if queue_id not in self.directory.by_id:
            await self.directory.refresh()
        queue = self.directory.by_id.get(queue_id)
        if queue is None or queue.state is not QueueState.ACTIVE or queue.system:
            return None
        return queue if queue.settings.anomalies.allows("no_consumer") else None

    async def find_stalled_exports(self) -> list[AnomalyRow]:
        now = await self.store.now()
        return [
            make_case(
                "export_stalled",
                now,
                consumer=name,
                value=(now - each.advanced_at) / MICROS_PER_SECOND,
            )
            for name, each in (await self.store.cursors()).items()
            if now - each.advanced_at > EXPORT_STALLED_S * MICROS_PER_SECOND
        ]

    async def find_stalled_feed(self) -> list[AnomalyRow]:
        """Finds rows that are committed and that an open transaction holds back."""
        state, version = await read_state(self.store)
        if not version:
            return []
        rows = await self.store.recent(state.position, 1)
        now = await self.store.now()
        if not rows or now - rows[0].at < FEED_STALLED_S * MICROS_PER_SECOND:
            return []
        page = await self.store.heads(state.cursor, 1)
        if page.history:
            return []
        checks = [each.text for each in await self.store.examine() if each.name == "transactions"]
        value, note = (now - rows[0].at) / MICROS_PER_SECOND, "; ".join(checks) or None
        return [make_case("feed_stalled", now, value=value, note=note)]


def find_loser(record: Record, fence: int) -> str | None:
    """Returns the consumer whose lease ran out, if that is why its settle was refused."""
    for row in record.timeline:
        if row.fence == fence and row.consumer is not None:
            return row.consumer
    return None
