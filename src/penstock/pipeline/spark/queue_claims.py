"""Claims messages for a queue stream. A micro-batch is a claim, and its offset lists the leases.

Spark saves the offset before it reads, so a restarted stream gets the same messages while their
leases last.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict

from penstock.broker.local import Broker
from penstock.errors import InvalidInput, InvalidState
from penstock.model.message import Leased, StoredMessage
from penstock.model.store_types import Completion, Extension, Lease, Lock
from penstock.pipeline.extraction.arrow import make_batch
from penstock.pipeline.lake.schema import MESSAGE
from penstock.pipeline.spark.options import normalize_options, parse_int, require_url
from penstock.pipeline.store_access import make_absolute_url, make_identity
from penstock.store import Store

KNOWN_OPTIONS = {"url", "queue", "scope", "lease", "partitionrows", "maxrowspertrigger", "path"}
# Messages per micro-batch, per task and per claim.
BATCH_ROWS, PARTITION_ROWS, MAX_CLAIM = 1_000, 250, 1_000
LEASE_S = 300
# A claim does not return these.
UNKNOWN_COLUMNS = ("run_at", "expires_at")
LEASED = pa.schema([
    *(field for field in MESSAGE if field.name not in UNKNOWN_COLUMNS),
    ("fence", pa.int64()), ("attempts", pa.int64()), ("deliveries", pa.int64()),
])  # fmt: skip

# Spark stores it as JSON: the store, the batch number, and [fence, ids] of each claim.
Offset: TypeAlias = dict[str, Any]


class QueueOptions(Struct, frozen=True):
    url: str
    queue: str
    scope: str
    lease: int
    rows: int
    limit: int


def parse_queue_options(given: MutableMapping[str, str]) -> QueueOptions:
    options = normalize_options(given, KNOWN_OPTIONS)
    return QueueOptions(
        make_absolute_url(require_url(options)),
        options["queue"],
        options.get("scope", "default"),
        parse_int("lease", options.get("lease")) or LEASE_S,
        parse_int("partitionRows", options.get("partitionrows")) or PARTITION_ROWS,
        parse_int("maxRowsPerTrigger", options.get("maxrowspertrigger")) or BATCH_ROWS,
    )


async def make_first_offset(store: Store, wanted: QueueOptions) -> Offset:
    """Returns the start of a stream. The queue must exist."""
    await Broker(store).admin.queue(wanted.queue, scope=wanted.scope)
    return {"store": await make_identity(store), "batch": 0, "held": []}


async def count_waiting(store: Store, wanted: QueueOptions) -> int:
    """Counts the messages that can be claimed now or later."""
    queue = await Broker(store).admin.queue(wanted.queue, scope=wanted.scope)
    depths = await store.depths(0)
    return sum(depths.get((queue.id, place), 0) for place in ("ready", "scheduled"))


async def claim_batch(
    store: Store, wanted: QueueOptions, consumer: str, start: Offset, most: int
) -> Offset:
    """Claims the next micro-batch. Returns `start` if there is nothing to claim."""
    await refuse_foreign(store, start)
    broker, held, left = Broker(store), [], most
    while left > 0:
        taken = await broker.claim(
            wanted.queue, consumer=consumer, limit=min(left, MAX_CLAIM), lease=wanted.lease,
            scope=wanted.scope,
        )  # fmt: skip
        if not taken.messages:
            break
        held += group_by_fence(taken.messages)
        left -= len(taken.messages)
    return start | {"batch": start["batch"] + 1, "held": held} if held else start


async def refuse_foreign(store: Store, start: Offset) -> None:
    if "held" not in start:
        raise InvalidState(
            "the checkpoint does not belong to a queue stream; start with a new checkpoint"
        )
    if start["store"] != await make_identity(store):
        raise InvalidState(
            "the checkpoint belongs to another store; start the stream with a new checkpoint"
        )


def group_by_fence(messages: Sequence[Leased]) -> list[list[Any]]:
    ids: dict[int, list[int]] = {}
    for message in messages:
        ids.setdefault(message.fence, []).append(message.id)
    return [[fence, group] for fence, group in ids.items()]


def list_locks(offset: Offset) -> list[Lock]:
    return [Lock(id, fence) for fence, ids in offset["held"] for id in ids]


async def extend(store: Store, held: Sequence[Lock], lease: float) -> None:
    """Extends the leases. Lost ones stay lost."""
    broker = Broker(store)
    for part in split_parts(held, MAX_CLAIM):
        await broker.extend_many([Extension(each.id, each.fence, lease) for each in part])


async def complete(store: Store, end: Offset) -> None:
    await refuse_foreign(store, end)
    await complete_all(store, list_locks(end))


async def complete_all(store: Store, held: Sequence[Lock]) -> None:
    """Skips messages that are completed already or leased to another consumer."""
    broker = Broker(store)
    for part in split_parts(held, MAX_CLAIM):
        await broker.complete_many([Completion(each.id, each.fence) for each in part])


async def read(store: Store, held: Sequence[Lock]) -> Any:
    """Returns an Arrow batch of the messages whose leases still hold."""
    queues = {queue.id: queue for queue in await store.queues()}
    found = []
    for lease in await store.leases(held):
        record = None if lease is None else await store.get(lease.id)
        if lease is not None and record is not None:
            found.append(make_leased(record.message, lease))
    return make_batch(found, LEASED, queues)


def make_leased(message: StoredMessage, lease: Lease) -> Leased:
    return Leased(
        **asdict(message),
        fence=lease.fence,
        attempts=lease.attempts,
        deliveries=lease.deliveries,
        lease_until=lease.lease_until,
        flags=lease.flags,
    )


def split_parts(held: Sequence[Lock], most: int) -> Iterator[Sequence[Lock]]:
    return (held[start : start + most] for start in range(0, len(held), most))


def make_batch_read_error() -> InvalidInput:
    return InvalidInput(
        "a queue can only be read with spark.readStream; to read a table use the option table"
    )
