"""Groups the rows of a page of the feed, where the store does not."""

from collections import defaultdict

from penstock.model.heads import DigestBounds, FeedDigest, FeedHead, FirstRuns, HeadFeed
from penstock.model.message import HistoryRow, Verb

MINUTE = 60_000_000
Key = tuple[int, str, int, str | None]


def make_digest(page: HeadFeed, bounds: DigestBounds) -> FeedDigest:
    groups: defaultdict[Key, list[tuple[HistoryRow, FeedHead]]] = defaultdict(list)
    others: list[HistoryRow] = []
    for row in page.history:
        head = None if row.id in page.rests else page.heads.get(row.id)
        if head is None or not is_grouped(row, head, bounds):
            others.append(row)
        else:
            groups[row.queue_id, head.type, row.at // MINUTE, row.consumer].append((row, head))
    return FeedDigest(
        [(head.id, head.queue_id, head.type, head.created_at) for head in page.messages],
        [make_first_runs(key, rows) for key, rows in groups.items()],
        HeadFeed([], others, page.heads, page.rests, page.cursor),
        max([row.position for row in page.history], default=0),
    )


def is_grouped(row: HistoryRow, head: FeedHead, bounds: DigestBounds) -> bool:
    return (
        row.verb is Verb.COMPLETE
        and row.claimed_at is not None
        and row.at - row.claimed_at <= bounds.run
        and head.size <= bounds.size
        and head.lease is None
        and row.queue_id not in bounds.whole
    )


def make_first_runs(key: Key, rows: list[tuple[HistoryRow, FeedHead]]) -> FirstRuns:
    claims = [row.claimed_at or 0 for row, _ in rows]
    runs = [row.at - claimed_at for (row, _), claimed_at in zip(rows, claims, strict=True)]
    waits = [
        claimed_at - (head.created_at if head.run_at is None else head.run_at)
        for (_, head), claimed_at in zip(rows, claims, strict=True)
    ]
    last_at = max(row.at for row, _ in rows)
    return FirstRuns(*key, min(claims), last_at, sort_durations(runs), sort_durations(waits))


def sort_durations(durations: list[int]) -> list[int]:
    """Clocks that were set back make no negative durations."""
    durations.sort()
    return durations if durations[0] >= 0 else [max(0, each) for each in durations]
