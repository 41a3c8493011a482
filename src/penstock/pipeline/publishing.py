"""Publishes drafts under keys that are kept for ever: what comes again is not published again."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from penstock.broker import Broker
from penstock.errors import Busy, OutcomeUnknown, StoreBusy, StoreUnreachable
from penstock.message import Draft, Flag
from penstock.pipeline.stores import existing
from penstock.pipeline.target import Target
from penstock.publisher import REFUSALS, refused_text
from penstock.store import Store
from penstock.ticket import Dedupe, Entry, Published

# Messages of one durable step.
BATCH = 200
# How often, and after how long, a step is asked for again that met another, or was not answered.
LOOKS, A_LOOK = 50, 0.1
# A key of its own kind: not freed when its message ends, as a unique one is.
NAMESPACE = "kept"
ANY_BODY = blake2b(digest_size=16).digest()
PASSING = (OutcomeUnknown, StoreUnreachable, StoreBusy)


class Sent(Struct, frozen=True):
    """How many were published, and how many had been before."""

    published: int = 0
    repeated: int = 0

    def __add__(self, other: "Sent") -> "Sent":
        return Sent(self.published + other.published, self.repeated + other.repeated)


def publish_all(target: Target, drafts: Iterable[Iterable[Draft]]) -> Sent:
    """In their order, for a caller without an event loop: a task of Spark.

    A step is whole or not at all. So whoever does the same again, or at the same time, goes on
    where the other stopped, and a message never overtakes the one before it.
    """
    with asyncio.Runner() as runner:
        store = runner.run(existing(target.url))
        try:
            broker, pace, sent = Broker(store), Pace(target.rate), Sent()
            for step in steps(drafts, pace.step):
                runner.run(pace.wait(len(step)))
                sent += runner.run(publish(broker, target, step))
            return sent
        finally:
            runner.run(store.close())


def steps(drafts: Iterable[Iterable[Draft]], most: int) -> Iterator[list[Draft]]:
    for group in drafts:
        rest = iter(group)
        while step := list(islice(rest, most)):
            yield step


class Pace:
    """At most `rate` messages a second."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self.step = BATCH if rate is None else max(1, min(BATCH, int(rate / 10)))
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
    """Before anything is published: all of them are there, and accept."""
    broker = Broker(store)
    for name in queues:
        await broker.admit(Draft(queue=name), scope=scope)


async def publish(broker: Broker, target: Target, drafts: Sequence[Draft]) -> Sent:
    entries = [await admitted(broker, target, draft) for draft in drafts]
    if not target.publish:
        return Sent()
    outcomes = await insist(broker.store, entries)
    for draft, outcome in zip(drafts, outcomes, strict=True):
        if outcome.code in REFUSALS:
            raise REFUSALS[outcome.code](refused_text(outcome.code, draft))
    repeated = sum(outcome.duplicate for outcome in outcomes)
    return Sent(len(outcomes) - repeated, repeated)


async def admitted(broker: Broker, target: Target, draft: Draft) -> Entry:
    entry = await broker.admit(draft, scope=target.scope)
    key = "" if draft.dedup is None else draft.dedup.key
    digest = ANY_BODY
    if target.conflict == "refuse" and entry.dedup is not None:
        digest = entry.dedup.digest
    kept = Dedupe(f"{NAMESPACE}:{key}", digest, None)
    return replace(entry, dedup=kept, flags=entry.flags & ~Flag.UNIQUE)


async def insist(store: Store, entries: Sequence[Entry]) -> list[Published]:
    """All of them or none. With their keys, what may have been published is asked for again."""
    for _ in range(LOOKS):
        try:
            outcomes = await store.enqueue(entries, atomic=True)
        except PASSING:
            await asyncio.sleep(A_LOOK)
            continue
        if all(outcome.code != Busy.code for outcome in outcomes):
            return outcomes
        await asyncio.sleep(A_LOOK)
    return await store.enqueue(entries, atomic=True)
