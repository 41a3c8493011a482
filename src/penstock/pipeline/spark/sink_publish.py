"""Publishes drafts under permanent dedup keys, so that repeats publish nothing."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.local import Broker
from penstock.broker.publish import REFUSALS, describe_refusal
from penstock.errors import Busy, OutcomeUnknown, StoreBusy, StoreUnreachable
from penstock.model.message import Draft, Flag
from penstock.model.store_types import Dedupe, Entry, Published
from penstock.model.units import STALE
from penstock.pipeline.spark.sink_options import SinkOptions
from penstock.pipeline.store_access import open_existing
from penstock.retry_policies import SPARK_SINK, STALE_PUBLISH_ATTEMPTS, Retries
from penstock.rules.drafts import explain_refusal
from penstock.store import Store

# Messages per transaction.
BATCH_SIZE = 200
# Unlike a unique key, it is not freed when the message ends.
NAMESPACE = "kept"
RETRYABLE = (OutcomeUnknown, StoreUnreachable, StoreBusy)


class SinkResult(Struct, frozen=True):
    """Counts messages published now, and those published before."""

    published: int = 0
    repeated: int = 0

    def __add__(self, other: "SinkResult") -> "SinkResult":
        return SinkResult(self.published + other.published, self.repeated + other.repeated)


def publish_all(target: SinkOptions, drafts: Iterable[Iterable[Draft]]) -> SinkResult:
    """Publishes drafts in order, for callers without an event loop such as Spark tasks.

    Each batch is atomic. A repeated or concurrent call continues where the other stopped, and no
    message overtakes an earlier one.
    """
    with asyncio.Runner() as runner:
        store = runner.run(open_existing(target.url))
        try:
            broker, pace, sent = Broker(store), PublishRate(target.rate), SinkResult()
            for step in split_steps(drafts, pace.step):
                runner.run(pace.wait(len(step)))
                sent += runner.run(publish(store, broker, target, step))
            return sent
        finally:
            runner.run(store.close())


def split_steps(drafts: Iterable[Iterable[Draft]], most: int) -> Iterator[list[Draft]]:
    for group in drafts:
        rest = iter(group)
        while step := list(islice(rest, most)):
            yield step


class PublishRate:
    """Limits publishing to `rate` messages per second."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self.step = BATCH_SIZE if rate is None else max(1, min(BATCH_SIZE, int(rate / 10)))
        self.started: float | None = None
        self.count = 0

    async def wait(self, count: int) -> None:
        if self.rate is None:
            return
        now = asyncio.get_running_loop().time()
        self.started = now if self.started is None else self.started
        await asyncio.sleep(self.started + self.count / self.rate - now)
        self.count += count


async def refuse_closed(store: Store, queues: Iterable[str], scope: str) -> None:
    """Raises if a queue does not exist or does not accept messages."""
    broker = Broker(store)
    for name in queues:
        queue = await broker.get_queue(name, scope=scope)
        if (refusal := explain_refusal(queue)) is not None:
            raise refusal


async def publish(
    store: Store, broker: Broker, target: SinkOptions, drafts: Sequence[Draft]
) -> SinkResult:
    outcomes: list[Published] = []
    for _ in range(STALE_PUBLISH_ATTEMPTS + 1):
        # At once, so that they share a look at the subscriptions.
        entries = await asyncio.gather(*(admit_draft(broker, target, each) for each in drafts))
        if not target.publish:
            return SinkResult()
        outcomes = await retry_busy(store, entries)
        if not any(outcome.code == STALE for outcome in outcomes):
            break
        broker.forget_queues()
    for draft, outcome in zip(drafts, outcomes, strict=True):
        if outcome.code in REFUSALS:
            raise REFUSALS[outcome.code](describe_refusal(outcome.code, draft))
    repeated = sum(outcome.duplicate for outcome in outcomes)
    return SinkResult(len(outcomes) - repeated, repeated)


async def admit_draft(broker: Broker, target: SinkOptions, draft: Draft) -> Entry:
    entry = await broker.admit(draft, scope=target.scope)
    key = "" if draft.dedup is None else draft.dedup.key
    compared = draft.body if target.conflict == "refuse" else b""
    digest = blake2b(compared, digest_size=16).digest()
    kept = Dedupe(f"{NAMESPACE}:{key}", digest, None)
    return replace(entry, dedup=kept, flags=entry.flags & ~Flag.UNIQUE)


async def retry_busy(store: Store, entries: Sequence[Entry]) -> list[Published]:
    """Publishes all or none. The keys make it safe to retry an unknown outcome."""
    retries: Retries | None = None
    while True:
        try:
            outcomes = await store.enqueue(entries, atomic=True)
        except RETRYABLE:
            retries = retries or SPARK_SINK.begin()
            if not await retries.again():
                raise
            continue
        if all(outcome.code != Busy.code for outcome in outcomes):
            return outcomes
        retries = retries or SPARK_SINK.begin()
        if not await retries.again():
            return outcomes
