"""Reads pages of the sources that a search chooses from."""

from collections.abc import Awaitable, Callable
from functools import partial

from penstock.model.changes import Horizon
from penstock.model.message import MAX_POSITION
from penstock.model.search import Position, Scan, ScanHead, ScanPage, Source
from penstock.stores.sql.transaction import SqlTransaction

# Queues that one page reads at most.
MAX_QUEUES = 100
# Ready messages are read in ascending order, the others in descending order.
FIRST_READY = Position(0, -MAX_POSITION, 0)
END_POSITION = Position(0, MAX_POSITION, MAX_POSITION)


async def scan(tx: SqlTransaction, scan: Scan) -> ScanPage:
    return await scan_pages(scan, partial(read_page, tx, scan))


async def scan_pages(scan: Scan, read: Callable[[Position, int], Awaitable[ScanPage]]) -> ScanPage:
    """Reads a page of a source, of some sources one queue after the other."""
    if not scan.source.by_queue:
        return await read(scan.after, scan.limit)
    heads: list[ScanHead] = []
    left = sorted(id for id in scan.queue_ids if id >= scan.after.queue_id)
    for queue_id in left[:MAX_QUEUES]:
        after = scan.after if queue_id == scan.after.queue_id else Position(queue_id)
        page = await read(after, scan.limit - len(heads))
        heads += page.heads
        if page.next is not None:
            return ScanPage(heads, page.next)
    more = left[MAX_QUEUES:]
    return ScanPage(heads, Position(more[0]) if more else None)


async def read_page(tx: SqlTransaction, scan: Scan, after: Position, limit: int) -> ScanPage:
    bound = after if after.id else FIRST_READY if scan.source is Source.READY else END_POSITION
    rows = await tx.all(
        f"search_{scan.source.value}",
        queue_id=after.queue_id,
        key=bound.key,
        id=bound.id,
        correlation=scan.correlation_id,
        ids=tx.encode_ids(scan.ids),
        limit=limit,
    )
    heads = [ScanHead(*row) for row in rows]
    if scan.source is Source.UNSUCCESSFUL:
        return make_window_page(heads)
    return ScanPage(heads, heads[-1].position if len(heads) == limit else None)


def make_window_page(heads: list[ScanHead]) -> ScanPage:
    """Ends a page where its window of history ended: at a message that has a key if it is another.

    Only an empty window is the end of the source.
    """
    return ScanPage([head for head in heads if not head.key], heads[-1].position if heads else None)


async def horizon(tx: SqlTransaction) -> Horizon:
    message, history = await tx.one("highest")
    return Horizon(tx.now, message, history)
