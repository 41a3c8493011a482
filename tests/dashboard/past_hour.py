"""Fills a file with an hour of the shop's history, in virtual time, so that every chart is full.

The shop of `examples/live_app.py` runs on the file afterwards, as if it had run before.
"""

import asyncio
import math
import random
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count

import msgspec
from msgspec import Struct

from penstock.broker.local import Broker
from penstock.model.documents import Document
from penstock.model.message import MICROS_PER_SECOND, Draft, Leased, Nack
from penstock.model.store_types import Completion
from penstock.testing.simulation import ManualClock, Simulation

HOUR_S = 3_600
TICK_S = 5
LIMIT = 500
# The mail server of one customer goes away for the last quarter of the hour.
OUTAGE_S = 900
BROKEN_HOST = 14
# How many hours ago the other services failed, too.
STORMS = (9, 31)
# When work is taken after a tick begins: which part of it at most, and how many seconds later.
TURNS = ((0.5, 0.02), (0.8, 0.1), (0.9, 0.5), (0.95, 1.0), (1.0, 1.0))


class Traffic(Struct, frozen=True):
    """Messages per second, how long they run, and which part of them fails. `body` has a number."""

    queue: str
    type: str
    body: str
    rate: float
    run: float
    failing: float = 0.0
    error: str = ""
    attempts: int = 5


DEMO = "penstock.cli.demo.app"
BUSY_BANK = "ConnectionError: the bank is busy"
AWAY = "TimeoutError: no answer from host-{} after 30000 ms"
SHOP = (
    Traffic("mail", f"{DEMO}.send_mail", '{"to":"ada@example.org","subject":"order %d"}',
            5.5, 0.06, 0.04, "ConnectionError: mail server busy"),
    Traffic("orders", "message", '{"number":%d,"total":9.5}',
            5.2, 0.01, 0.02, "ValueError: no total", attempts=1),
    Traffic("images", f"{DEMO}.resize", '{"name":"cat-%d.png","sizes":[64]}', 1.1, 0.3),
    Traffic("payments", "live_app.capture", '{"order":%d}', 2.7, 0.1, 0.05, BUSY_BANK),
    Traffic("webhooks", "live_app.call_webhook", '{"host":%d}', 5.0, 0.05, 0.02, AWAY, attempts=3),
    Traffic("search-index", "live_app.index", '{"product":%d}', 5.0, 1.0),
)  # fmt: skip


class Shop:
    """Publishes and works for some seconds of virtual time after the other."""

    def __init__(self, broker: Broker, clock: ManualClock, dice: random.Random) -> None:
        self.broker = broker
        self.clock = clock
        self.dice = dice
        self.number = 90_000

    def draw_count(self, traffic: Traffic, second: int) -> int:
        day = 1.0 + 0.35 * math.sin(second / 540) + 0.15 * math.sin(second / 95)
        return max(0, round(self.dice.gauss(traffic.rate * TICK_S * day, math.sqrt(traffic.rate))))

    def make_drafts(self, traffic: Traffic, number: int) -> Iterable[Draft]:
        for _ in range(number):
            self.number += 1
            # Customers of the broken host are in Brazil.
            broken = traffic.queue == "webhooks" and self.number % 9 == 0
            country = "BR" if broken else self.dice.choice(("BR", "DE", "IT", "US"))
            yield Draft(
                queue=traffic.queue,
                type=traffic.type,
                body=(traffic.body % self.draw_argument(traffic, broken)).encode(),
                labels={"country": country},
                max_attempts=traffic.attempts,
            )

    def draw_argument(self, traffic: Traffic, broken: bool) -> int:
        if traffic.queue != "webhooks":
            return self.number
        return BROKEN_HOST if broken else self.dice.randrange(12)

    async def pass_tick(self, second: int) -> None:
        begin = self.clock()
        drafts = [
            draft
            for traffic in SHOP
            for draft in self.make_drafts(traffic, self.draw_count(traffic, second))
        ]
        await self.broker.publish_many(drafts)
        is_slow = second > HOUR_S - OUTAGE_S
        for part, pause in TURNS:
            self.clock.advance(self.dice.uniform(0.2, 1.8) * pause * (1.3 if is_slow else 0.4))
            for traffic in SHOP:
                await self.work(traffic, part, is_slow)
        self.clock.now = begin + TICK_S * MICROS_PER_SECOND

    async def work(self, traffic: Traffic, part: float, is_slow: bool) -> None:
        limit = LIMIT if part == 1.0 else max(1, round(traffic.rate * TICK_S * part))
        found = await self.broker.claim(traffic.queue, consumer="k2f8a1q", limit=limit)
        if not found.messages:
            return
        before = self.clock()
        self.clock.advance(traffic.run * self.dice.uniform(0.7, 1.4))
        failed = [each for each in found.messages if self.fails(traffic, each, is_slow)]
        ids = {each.id for each in failed}
        done = [Completion(each.id, each.fence) for each in found.messages if each.id not in ids]
        await self.broker.complete_many(done)
        if failed:
            error = traffic.error.format(BROKEN_HOST if is_slow else 9)
            await self.broker.settle_many(
                [(each, Nack(error, delay=TICK_S - 0.1)) for each in failed]
            )
        # Queues are worked on at the same time.
        self.clock.now = before

    def fails(self, traffic: Traffic, message: Leased, is_slow: bool) -> bool:
        if traffic.queue == "webhooks" and is_slow and b'"host":%d' % BROKEN_HOST in message.body:
            return True
        return self.dice.random() < traffic.failing


def make_hour(hour: int, rate: float, failing: float) -> dict[str, object]:
    """What the pipeline counts in an hour. The work is less at night."""
    day = 1.0 + 0.6 * math.sin((hour % 24 - 8) / 24 * 2 * math.pi)
    published = round(rate * HOUR_S * day)
    failures = round(published * failing)
    return {
        "published": published, "attempts": published + failures, "completed": published,
        "failures": failures, "dead": failures // 50, "failure_rate": failing / (1 + failing),
        "wait_p50": 0.08 * day, "wait_p95": 0.9 * day * day, "run_p50": 0.1, "run_p95": 0.4,
    }  # fmt: skip


def make_results(now: int) -> Iterable[Document]:
    """Yields what the pipeline writes back: two days of figures, anomalies and causes."""
    last = now // HOUR_S
    for number, traffic in enumerate(SHOP, 1):
        hours = []
        for hour in range(last - 48, last):
            failing = traffic.failing * (4 if last - hour in STORMS else 1)
            at = datetime.fromtimestamp(hour * HOUR_S, UTC)
            hours.append({"hour": at, **make_hour(hour, traffic.rate, failing)})
        total = make_hour(last, traffic.rate * 48, traffic.failing)
        body = {"queue_id": number, "queue": traffic.queue, "total": total, "hours": hours}
        yield make_result("metrics", traffic.queue, body)
        if traffic.failing:
            cause = {"id": traffic.queue, "queue": traffic.queue, "count": 40 * number,
                     "template": traffic.error.format("<n>")}  # fmt: skip
            yield make_result("triage", traffic.queue, cause)
            for ago in STORMS:
                at = datetime.fromtimestamp((last - ago) * HOUR_S, UTC)
                found = {
                    "id": f"{traffic.queue}-{ago}", "hour": at, "severity": "critical",
                    "kind": "retry_storm", "queue": traffic.queue,
                    "text": f"four times as many retries as usual in {traffic.queue}",
                }  # fmt: skip
                yield make_result("anomaly", f"{traffic.queue}-{ago}", found)


def make_result(kind: str, name: str, body: object) -> Document:
    return Document(kind=kind, name=f"lake/{name}", body=msgspec.json.encode(body))


async def fill(path: str) -> None:
    start = (round(time.time()) - HOUR_S) // TICK_S * TICK_S
    clock = ManualClock(start * MICROS_PER_SECOND)
    async with Simulation.open(f"sqlite:///{path}", clock=clock) as simulation:
        for traffic in SHOP:
            await simulation.broker.admin.ensure_queue(traffic.queue)
        shop = Shop(simulation.broker, clock, random.Random(20))
        for second in count(0, TICK_S):
            # It ends where the real time is by then.
            if clock() + TICK_S * MICROS_PER_SECOND > time.time() * MICROS_PER_SECOND:
                break
            await shop.pass_tick(second)
            for scheduler in simulation.schedulers:
                await scheduler.tick()
            if second % 60 == 0:
                await simulation.run_until_idle()
        await simulation.run_until_idle()
        await simulation.store.save_documents(list(make_results(start + HOUR_S)))


if __name__ == "__main__":
    asyncio.run(fill(sys.argv[1]))
