"""A queue as a stream of Spark, and the end of its messages once they are worked on."""

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
        # How many a run over what is there now may still claim.
        self.left: int | None = None
        # The number of the last batch that is known to be completed.
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
        """Spark plans a batch when the one before it is written down as done."""
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
        """Also of a batch that a killed driver left behind: its leases begin anew."""
        held = queue_claims.list_locks(end)
        use_store(
            self.wanted.url, lambda store: queue_claims.extend(store, held, self.wanted.lease)
        )
        return [InputPartition(part) for part in queue_claims.split_parts(held, self.wanted.rows)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield use_store(self.wanted.url, lambda store: queue_claims.read(store, partition.value))

    def commit(self, end: Offset) -> None:
        """Spark calls it for no batch that is the last of a run."""
        if end.get("batch", 1) > self.completed:
            use_store(self.wanted.url, lambda store: queue_claims.complete(store, end))
            self.completed = end["batch"]


def complete_after(
    url: str, write: Callable[[DataFrame, int], None], *, lease: float = LEASE_S
) -> Callable[[DataFrame, int], None]:
    """For foreachBatch on a queue: what `write` has written is completed.

    Meanwhile its leases are extended. If `write` raises, or its process dies, the stream gives it
    the same batch again when it is started the next time.
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
        raise InvalidInput("the rows of a queue are completed by their id and fence: keep them")
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
