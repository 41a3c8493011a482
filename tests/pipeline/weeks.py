"""Days of work in a store whose clock is turned, and what they come to, in plain Python."""

import asyncio
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock import stores
from penstock.broker.local import Broker
from penstock.errors import NotFound
from penstock.model.anomalies import QUIET_KINDS
from penstock.model.message import (
    Draft,
    Fail,
    FeedMessage,
    HistoryRow,
    Leased,
    Nack,
    Park,
    Reclaim,
    Release,
    Settlement,
    SettleReject,
    State,
    Verb,
)
from penstock.model.queue import DEAD_LETTER
from penstock.rules.histograms import GROWTH
from penstock.testing.simulation import START, ManualClock

HOUR = 3_600_000_000
MINUTE = 60_000_000
TYPES = ("invoice", "letter")
LEASE = 30.0
BACKOFF = {"kind": "constant", "initial": 60, "jitter": "none"}
WORKED = {Verb.COMPLETE, Verb.FAIL, Verb.NACK, Verb.REJECT, Verb.RECLAIM, Verb.CANCEL}
FAILED = WORKED - {Verb.COMPLETE, Verb.CANCEL}


class Work:
    """Does something in every hour, at random but always the same."""

    def __init__(self, broker: Broker, clock: ManualClock, seed: int) -> None:
        self.broker = broker
        self.clock = clock
        self.random = random.Random(seed)

    async def hour(self, count: int) -> None:
        end = self.clock.now + HOUR
        if count:
            await self.work(count)
        self.clock.now = max(end, self.clock.now)

    async def work(self, count: int) -> None:
        await self.publish(count)
        for consumer in ("c1", "c2", "c3"):
            self.clock.advance(self.random.uniform(1, 300))
            await self.broker.store.promote(1_000)
            taken = await self.broker.claim("mail", consumer=consumer, limit=count // 2)
            for message in taken.messages:
                self.clock.advance(self.random.choice((0.01, 0.2, 0.7, 3, 11)))
                await self.end(message)
        await self.tidy()

    async def publish(self, count: int) -> None:
        drafts = [
            Draft(
                queue="mail",
                type=self.random.choice(TYPES),
                body=self.body(n),
                labels={"shard": str(n % 2)},
                ttl=600 if n % 11 == 10 else None,
            )
            for n in range(count)
        ]
        await self.broker.publish_many(drafts)

    def body(self, n: int) -> bytes:
        bodies = (b'{"region":"north"}', b'{"region":"south","n":1}', b"not JSON", b"\xff\x00")
        return b"x" * 6_000 if n % 13 == 12 else bodies[n % 4]

    async def end(self, message: Leased) -> None:
        settlement = self.settlement(message)
        if settlement is None:
            await self.broker.complete(message)
            return
        if isinstance(settlement, Reclaim):
            self.clock.advance(LEASE + 1)
        await self.broker.settle(message, settlement)

    def settlement(self, message: Leased) -> Settlement | None:
        """Messages of the north fail for a reason of their own."""
        drawn = self.random.random()
        if b"north" in message.body and drawn < 0.6:
            return Nack(f"no answer from host-{message.id} after {message.id * 7} ms")
        ends: Sequence[tuple[float, Callable[[], Settlement]]] = (
            (0.10, lambda: Nack(f"bad value '{message.id}'", delay=90)),
            (0.14, lambda: Fail("it is hopeless")),
            (0.18, lambda: SettleReject("not ours")),
            (0.22, Release),
            (0.24, Park),
            (0.32, Reclaim),
        )
        return next((make() for bound, make in ends if drawn < bound), None)

    async def tidy(self) -> None:
        """What operators do: dead letters are taken back, dealt with, or thrown away."""
        await self.broker.store.expire(1_000)
        dead = await self.broker.claim(DEAD_LETTER, consumer="operator", limit=3)
        for n, message in enumerate(dead.messages):
            if n == 0:
                await self.broker.complete(message)
            else:
                await self.broker.settle(message, Nack("still broken"))
                if n == 1:
                    await self.broker.admin.redrive(message.id)
                elif self.random.random() < 0.3:
                    await self.broker.admin.purge_dead(message.id)


def live(url: str, hours: Sequence[int], start: int = START) -> None:
    """One hour after the other, with so many messages each. Each is as it always is."""

    async def main() -> None:
        clock = ManualClock(start)
        async with await stores.open(url, clock=clock) as store:
            broker = Broker(store)
            try:
                await broker.admin.queue("mail")
            except NotFound:
                await broker.admin.create_queue(
                    "mail",
                    max_attempts=3,
                    lease=LEASE,
                    backoff=BACKOFF,
                    anomalies={"on": list(QUIET_KINDS)},
                )
            for count in hours:
                await Work(broker, clock, clock.now).hour(count)

    asyncio.run(main())


class Oracle:
    """The same numbers, by loops over rows."""

    def __init__(self, messages: Sequence[FeedMessage], history: Sequence[HistoryRow]) -> None:
        self.messages = {each.id: each for each in messages}
        self.history = sorted(history, key=lambda row: row.position)
        self.before = self.rests()

    def rests(self) -> dict[int, HistoryRow | None]:
        """By position: the row of the same message before it."""
        last: dict[int, HistoryRow] = {}
        found = {}
        for row in self.history:
            found[row.position] = last.get(row.id)
            last[row.id] = row
        return found

    def ready_at(self, row: HistoryRow) -> int:
        before = self.before[row.position]
        if before is None:
            message = self.messages[row.id]
            return max(message.created_at, message.run_at or 0)
        return before.at if before.due_at is None else before.due_at

    def was_dead(self, row: HistoryRow) -> bool:
        before = self.before[row.position]
        return before is not None and before.state is State.DEAD

    def worked(self) -> Iterable[HistoryRow]:
        return (row for row in self.history if row.claimed_at is not None and row.verb in WORKED)

    def counts(self) -> dict[tuple[int, str], Counter[str]]:
        """By hour and type."""
        found: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
        for message in self.messages.values():
            found[hour_of(message.created_at), message.type]["published"] += 1
        for row in self.history:
            key = hour_of(row.at), self.messages[row.id].type
            found[key].update(self.said(row))
        return found

    def said(self, row: HistoryRow) -> Iterable[str]:
        done = row.claimed_at is not None and row.verb in WORKED
        waits = row.state in (State.READY, State.SCHEDULED)
        truths = {
            "attempts": done,
            "completed": done and row.state is State.COMPLETED,
            "failures": done and row.verb in FAILED,
            "retried": done and row.verb in FAILED and waits,
            "lost": row.verb is Verb.RECLAIM,
            "failed": row.state is State.FAILED,
            "dead": row.state is State.DEAD and not self.was_dead(row),
            "expired": row.state is State.EXPIRED,
            "cancelled": row.state is State.CANCELLED,
            "redriven": row.verb is Verb.REDRIVE and waits,
            "handed_back": row.verb in (Verb.RELEASE, Verb.PARK),
        }
        return [name for name, true in truths.items() if true]

    def times(self, name: str) -> dict[tuple[int, str], list[float]]:
        """Seconds that each attempt waited, or ran; by hour and type."""
        found: dict[tuple[int, str], list[float]] = defaultdict(list)
        for row in self.worked():
            begin, end = (
                (row.claimed_at or 0, row.at)
                if name == "run"
                else (self.ready_at(row), row.claimed_at or 0)
            )
            key = hour_of(row.at), self.messages[row.id].type
            found[key].append(max(end - begin, 0) / 1_000_000)
        return found

    def backlog(self) -> dict[int, tuple[int, int]]:
        """By minute: how many are unfinished, and how many dead, at its end."""
        changes: dict[int, Counter[str]] = defaultdict(Counter)
        for message in self.messages.values():
            changes[message.created_at // MINUTE]["waiting"] += 1
        for row in self.history:
            change = changes[row.at // MINUTE]
            place = "dead" if self.was_dead(row) else "waiting"
            change[place] -= 1
            if not row.final:
                change["dead" if row.state is State.DEAD else "waiting"] += 1
        total: Counter[str] = Counter()
        found = {}
        for minute in sorted(changes):
            total.update(changes[minute])
            found[minute * MINUTE] = total["waiting"], total["dead"]
        return found


def hour_of(moment: int) -> int:
    return moment // HOUR * HOUR


def near(value: float | None, values: list[float], percent: int) -> bool:
    """As near to the exact percentile as half a bucket."""
    ordered = sorted(values)
    exact = max(ordered[math.ceil(len(ordered) * percent / 100) - 1], 1e-6)
    return value is not None and exact / GROWTH <= value <= exact * GROWTH


def micros(moment: Any) -> int:
    """Of what Arrow or Spark gives back."""
    return round(float(moment.timestamp()) * 1_000_000)
