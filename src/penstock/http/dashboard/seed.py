"""Reads the last five minutes of all queues from the store when a dashboard is opened."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

from msgspec import Struct, field

from penstock.http.dashboard.series import BUCKET_MICROS, BUCKETS, QueueSeries, Sample, find_bucket
from penstock.http.events.tail import find_newest
from penstock.http.metrics.queue_stats import QueueSnapshot
from penstock.model.heads import HeadFeed
from penstock.model.message import MAX_POSITION, HistoryRow, Moment
from penstock.model.store_types import Cursor
from penstock.rules.metrics import Timing, time_rows
from penstock.store import Store

MAX_SEED_ROWS = 20_000
SEED_PAGE_SIZE = 2_000


class Seed(Struct):
    """Rows of the window, and by queue id what was published, waited and ran in each bucket."""

    # The first bucket that was read whole, and where the live figures go on.
    first: int
    position: int
    rows: list[HistoryRow] = []
    published: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    waiting: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    running: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    # Queues with a run that ended.
    worked: set[int] = set()
    # When the oldest message that waited at the end of a bucket became ready.
    since: dict[tuple[int, int], Moment] = {}

    def add(self, page: HeadFeed) -> None:
        for head in page.messages:
            bucket = find_bucket(head.created_at)
            if bucket >= self.first:
                self.published[head.queue_id][bucket] += 1
        for timing in time_rows(page):
            self.add_run(timing)
        self.rows += [row for row in page.history if find_bucket(row.at) >= self.first]

    def add_run(self, timing: Timing) -> None:
        row = timing.row
        if row.claimed_at is None:
            return
        self.worked.add(row.queue_id)
        for bucket in self.list_ends(row.claimed_at, row.at):
            self.running[row.queue_id][bucket] += 1
        ready_at = row.claimed_at - (timing.wait or 0)
        for bucket in self.list_ends(ready_at, row.claimed_at):
            self.waiting[row.queue_id][bucket] += 1
            key = row.queue_id, bucket
            self.since[key] = min(ready_at, self.since.get(key, ready_at))

    def list_ends(self, begin: Moment, end: Moment) -> range:
        """Returns the buckets that end within a span of time."""
        return range(max(self.first, -(-begin // BUCKET_MICROS) - 1), -(-end // BUCKET_MICROS) - 1)

    def fill(self, series: QueueSeries, queue_id: int, snapshot: QueueSnapshot) -> None:
        """Gives a series the samples that it would have if it had been counted before."""
        series.begun = self.first
        series.published.update(self.published.get(queue_id, {}))
        # Without an ended run, those of now are long.
        claimed = snapshot.depths.get((queue_id, "lease"), 0)
        lasting = 0 if queue_id in self.worked else claimed
        if not (lasting or queue_id in snapshot.since or queue_id in self.worked):
            return
        for bucket in range(self.first, find_bucket(snapshot.at)):
            ready, since = self.estimate_waiting(queue_id, bucket, snapshot)
            running = self.running[queue_id][bucket] + lasting
            if ready or running:
                series.samples[bucket] = Sample(ready, running, since)

    def estimate_waiting(
        self, queue_id: int, bucket: int, snapshot: QueueSnapshot
    ) -> tuple[int, Moment | None]:
        """Counts what waited and ran since. What still waits arrived evenly since the oldest."""
        waited = self.waiting[queue_id][bucket]
        since, oldest = self.since.get((queue_id, bucket)), snapshot.since.get(queue_id)
        end = (bucket + 1) * BUCKET_MICROS
        if oldest is None or oldest > end:
            return waited, since
        ready = snapshot.depths.get((queue_id, "ready"), 0)
        share = (end - oldest) / max(1, snapshot.at - oldest)
        still = max(1, round(ready * share)) if ready else 0
        return waited + still, oldest if since is None else min(since, oldest)


async def read_seed(store: Store) -> Seed:
    """Reads the newest rows of the window, up to a limit."""
    newest = await find_newest(store)
    first = find_bucket(await store.now()) - BUCKETS + 1
    begin = first * BUCKET_MICROS

    async def is_old_message(id: int) -> bool:
        page = await store.heads(Cursor(message=id, history=MAX_POSITION), 1)
        return bool(page.messages) and page.messages[0].created_at < begin

    async def is_old_row(position: int) -> bool:
        rows = await store.recent(position, 1)
        return bool(rows) and rows[0].at < begin

    cursor = Cursor(
        message=await find_start(newest.message, is_old_message),
        history=await find_start(newest.history, is_old_row),
    )
    seed = Seed(first, cursor.history)
    for _ in range(MAX_SEED_ROWS // SEED_PAGE_SIZE):
        page = await store.heads(cursor, SEED_PAGE_SIZE)
        if not page.history and not page.messages:
            break
        if cursor.message == newest.message - MAX_SEED_ROWS and page.messages:
            seed.first = max(seed.first, find_bucket(page.messages[0].created_at) + 1)
        if cursor.history == newest.history - MAX_SEED_ROWS and page.history:
            seed.first = max(seed.first, find_bucket(page.history[0].at) + 1)
        seed.add(page)
        cursor = page.cursor
    seed.position = cursor.history
    return seed


async def find_start(newest: int, is_old: Callable[[int], Awaitable[bool]]) -> int:
    """Returns the place before the first row of the window, by halving, within the limit."""
    low, high = max(0, newest - MAX_SEED_ROWS), newest
    if not await is_old(low):
        return low
    while high - low > SEED_PAGE_SIZE // 4:
        middle = (low + high) // 2
        if await is_old(middle):
            low = middle
        else:
            high = middle
    return low
