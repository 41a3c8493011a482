"""Reads a queue as a Spark stream, and completes its messages after each batch."""

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.errors import InvalidInput
from penstock.model.store_types import Lock
from penstock.pipeline.spark import queue_claims
from penstock.pipeline.spark.queue_claims import LEASE_S, Offset, QueueOptions
from penstock.pipeline.store_access import make_absolute_url, use_store


class QueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, wanted: QueueOptions) -> None:
        self.wanted = wanted
        self.consumer = f"spark-{uuid.uuid4().hex[:12]}"
        # Messages that an availableNow run may still claim.
        self.left: int | None = None
        # The last batch that was completed.
        self.completed = 0

    def initialOffset(self) -> Offset:  # noqa: N802
        return use_store(
            self.wanted.url, lambda store: queue_claims.make_first_offset(store, self.wanted)
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.wanted.limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.left = use_store(
            self.wanted.url, lambda store: queue_claims.count_waiting(store, self.wanted)
        )

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Spark plans a batch after it has committed the one before."""
        self.commit(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.wanted.limit
        most = most if self.left is None else min(most, self.left)
        end = use_store(
            self.wanted.url,
            lambda store: queue_claims.claim_batch(store, self.wanted, self.consumer, start, most),
        )
        if self.left is not None and end is not start:
            self.left -= len(queue_claims.list_locks(end))
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Renews the leases, because the batch may come from a driver that was killed."""
        held = queue_claims.list_locks(end)
        use_store(
            self.wanted.url, lambda store: queue_claims.extend(store, held, self.wanted.lease)
        )
        return [InputPartition(part) for part in queue_claims.split_parts(held, self.wanted.rows)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield use_store(self.wanted.url, lambda store: queue_claims.read(store, partition.value))

    def commit(self, end: Offset) -> None:
        """Completes a batch. Spark does not call this for the last batch of a run."""
        if end.get("batch", 1) > self.completed:
            use_store(self.wanted.url, lambda store: queue_claims.complete(store, end))
            self.completed = end["batch"]


def complete_after(
    url: str, write: Callable[[DataFrame, int], None], *, lease: float = LEASE_S
) -> Callable[[DataFrame, int], None]:
    """Wraps `write` for foreachBatch on a queue, and completes the messages after it returns.

    Leases are extended while it runs. If `write` raises or the process dies, the restarted stream
    delivers the same batch again.
    """
    url = make_absolute_url(url)

    def work(rows: DataFrame, batch: int) -> None:
        rows.persist()
        try:
            held = list_held(rows)
            with keep_extended(url, held, lease):
                write(rows, batch)
            use_store(url, lambda store: queue_claims.complete_all(store, held))
        finally:
            rows.unpersist()

    return work


def list_held(rows: DataFrame) -> list[Lock]:
    if not {"id", "fence"} <= set(rows.columns):
        raise InvalidInput("complete_after needs the columns id and fence")
    return [Lock(row.id, row.fence) for row in rows.select("id", "fence").collect()]


@contextmanager
def keep_extended(url: str, held: Sequence[Lock], lease: float) -> Iterator[None]:
    done = threading.Event()

    def keep() -> None:
        while not done.wait(lease / 3):
            use_store(url, lambda store: queue_claims.extend(store, held, lease))

    thread = threading.Thread(target=keep, name="penstock-leases", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
