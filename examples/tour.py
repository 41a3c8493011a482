"""A live tour of the core: queues, retries, dead letters, ordering keys, schedules and agents."""

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from itertools import count, pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import structlog

from penstock import (
    Broker,
    Draft,
    Leased,
    Nack,
    Runner,
    Schedule,
    State,
    make_agents,
    make_identity,
    stores,
)
from penstock.errors import LockLost, SlugConflict
from penstock.model.message import HistoryRow, Moment, Verb
from penstock.store import Store

INTRODUCTION = """
orders   two consumers, by priority; a third one crashes while it holds an order
mail     a mail fails three times, becomes a dead letter, and is redriven by an operator
ledger   three accounts, each processed one step at a time
reports  a cron schedule that runs every two seconds
"""
PLACES = {"ready": "ready", "scheduled": "scheduled", "lease": "claimed", "dead": "dead"}
SUMMARY = {
    Verb.COMPLETE: "completed",
    Verb.NACK: "failed and retried",
    Verb.RECLAIM: "reclaimed from a crashed consumer",
    Verb.REDRIVE: "redriven from the dead letters",
}
LONGEST_DRAIN = 20.0
Work = Callable[[Leased], Awaitable[None]]


class Tour:
    def __init__(self, store: Store, seconds: float) -> None:
        self.store = store
        self.broker = Broker(store)
        self.seconds = seconds
        self.started = monotonic()
        self.began_at: Moment = 0
        self.stopping = asyncio.Event()
        self.queues: dict[int, str] = {}
        self.repaired: set[int] = set()
        self.steps: defaultdict[str, list[int]] = defaultdict(list)
        self.totals: Counter[str] = Counter()

    async def run(self) -> None:
        self.began_at = await self.store.now()
        await self.create_queues()
        await self.crash()
        agents = make_agents(self.store, make_identity())
        async with Runner(agents), asyncio.TaskGroup() as group:
            followed = group.create_task(self.follow())
            for queue, work in self.jobs():
                group.create_task(self.consume(queue, work))
            group.create_task(self.repair())
            await asyncio.gather(self.sell(), self.keep_books(), self.show_counts())
            await self.drain()
            self.stopping.set()
            await followed
        await self.sum_up()

    async def create_queues(self) -> None:
        admin = self.broker.admin
        await self.create("orders", lease=1.5)
        constant = {"kind": "constant", "initial": 0.3, "jitter": "none"}
        await self.create("mail", max_attempts=3, backoff=constant)
        await self.create("ledger", ordering="fifo")
        await self.create("reports")
        draft = Draft(queue="reports", type="report", body=b"{}")
        await admin.schedule(Schedule("every-two-seconds", "*/2 * * * * *", draft))
        self.queues = {queue.id: queue.name for queue in await admin.queues()}

    async def create(self, name: str, **settings: Any) -> None:
        try:
            await self.broker.admin.create_queue(name, **settings)
        except SlugConflict:
            print(f"queue {name!r} exists from an earlier tour")

    # Producers.

    async def sell(self) -> None:
        """Publishes orders with three priorities, and one mail to a mailbox that does not exist."""
        await self.broker.publish(Draft(queue="mail", type="mail.send", body=b"nobody"))
        for number in count():
            drafts = [Draft(queue="orders", type="order", priority=n % 3) for n in range(5)]
            await self.broker.publish_many(drafts)
            await self.broker.publish(Draft(queue="mail", type="mail.send", body=b"%d" % number))
            await asyncio.sleep(0.2)
            if monotonic() - self.started > self.seconds:
                return

    async def keep_books(self) -> None:
        """Publishes steps of three accounts, with one ordering key per account."""
        for number in range(4):
            drafts = [
                Draft(queue="ledger", type="step", body=b"%d" % number, ordering_key=account)
                for account in ("ann", "bob", "eve")
            ]
            await self.broker.publish_many(drafts, atomic=True)

    # Consumers.

    def jobs(self) -> list[tuple[str, Work]]:
        """Returns two consumers for orders and three for the ledger, which still run in order."""
        orders, ledger = [("orders", self.order)] * 2, [("ledger", self.step)] * 3
        return [*orders, *ledger, ("mail", self.mail), ("reports", self.report)]

    async def consume(self, queue: str, work: Work) -> None:
        """Completes a message if the work returns, and nacks it if it raises."""
        consumer = make_identity()
        while not self.stopping.is_set():
            taken = await self.broker.claim(queue, consumer=consumer, limit=5, wait=0.2)
            for message in taken.messages:
                try:
                    await self.settle(message, work)
                except LockLost as error:
                    self.say(f"lease lost: {error}")

    async def settle(self, message: Leased, work: Work) -> None:
        try:
            await work(message)
        except ValueError as error:
            await self.broker.settle(message, Nack(str(error)))
        else:
            await self.broker.complete(message)

    async def order(self, message: Leased) -> None:
        await asyncio.sleep(0.01)

    async def mail(self, message: Leased) -> None:
        if message.body == b"nobody" and message.id not in self.repaired:
            raise ValueError("no such mailbox")

    async def step(self, message: Leased) -> None:
        self.steps[message.meta.ordering_key or ""].append(message.id)
        await asyncio.sleep(0.05)

    async def report(self, message: Leased) -> None:
        tick = (message.meta.headers or {})["penstock-tick"]
        self.say(f"reports {message.id}: scheduled for {tick[11:19]} UTC")

    async def crash(self) -> None:
        """Claims an order and never settles it, so that its lease expires."""
        await self.broker.publish(Draft(queue="orders", type="order"))
        taken = await self.broker.claim("orders", consumer="crashed")
        for message in taken.messages:
            self.say(f"orders {message.id}: its consumer crashes")

    # An operator.

    async def repair(self) -> None:
        """Redrives dead letters once the mailbox exists."""
        while not self.stopping.is_set():
            await asyncio.sleep(0.5)
            for record in await self.broker.admin.find("mail", state=State.DEAD):
                self.repaired.add(record.message.id)
                await self.broker.admin.redrive(record.message.id)

    # Output.

    async def follow(self) -> None:
        """Prints retries, lost leases, dead letters and redrives."""
        seen, last = 0, False
        while not last:
            last = self.stopping.is_set()
            for row in await self.store.recent(seen, 10_000):
                seen = row.position
                # Skips rows of an earlier tour in the same file.
                if row.at >= self.began_at:
                    self.totals[row.verb] += 1
                    if row.verb is not Verb.COMPLETE:
                        self.say(self.tell(row))
            await asyncio.sleep(0.1)

    def tell(self, row: HistoryRow) -> str:
        told = f"{self.queues[row.queue_id]} {row.id}: {row.verb}, now {row.state}"
        why = " ".join(dict.fromkeys(filter(None, (row.reason, row.error))))
        return f"{told} ({why})" if why else told

    async def show_counts(self) -> None:
        while (left := self.seconds - (monotonic() - self.started)) > 0:
            await asyncio.sleep(min(left, max(0.5, self.seconds / 4)))
            await self.print_counts()

    async def print_counts(self) -> None:
        counts = await self.counts()
        print(f"\n{'':<10}" + "".join(f"{place:>11}" for place in (*PLACES.values(), "ended")))
        for name in ("orders", "mail", "ledger", "reports"):
            cells = "".join(f"{counts[name, place]:>11}" for place in (*PLACES, "ended"))
            print(f"{name:<10}{cells}")
        print()

    async def counts(self) -> Counter[tuple[str, str]]:
        tallies = await self.store.census()
        return Counter({(self.queues[t.queue_id], t.place): t.count for t in tallies})

    async def drain(self) -> None:
        """Waits until all messages have ended."""
        admin = self.broker.admin
        await admin.unschedule("reports", "every-two-seconds")
        until = monotonic() + LONGEST_DRAIN
        while monotonic() < until:
            counts = await self.counts()
            if not any(count for (_, place), count in counts.items() if place in PLACES):
                return
            await asyncio.sleep(0.1)

    async def sum_up(self) -> None:
        await self.print_counts()
        in_order = all(a < b for ids in self.steps.values() for a, b in pairwise(ids))
        for verb, text in SUMMARY.items():
            print(f"{self.totals[verb]:>6}  {text}")
        print(f"{'yes' if in_order else 'NO':>6}  the steps of every account ran in order")

    def say(self, text: str) -> None:
        print(f"{monotonic() - self.started:6.1f} s  {text}")


async def take(path: Path, seconds: float) -> None:
    async with await stores.open(f"sqlite:///{path}") as store:
        await Tour(store, seconds).run()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="A tour of the core of Penstock.")
    parser.add_argument("path", nargs="?", type=Path, help="database file; created if missing")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long to publish")
    asked = parser.parse_args(arguments)
    path = asked.path or Path(tempfile.mkdtemp(prefix="penstock-tour-")) / "tour.db"
    # The tour prints the same events from the history.
    quiet = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=quiet)
    print(f"This tour takes about {asked.seconds + 2:g} s. Stop it with Ctrl-C.\n{INTRODUCTION}")
    try:
        asyncio.run(take(path, asked.seconds))
    except KeyboardInterrupt:
        print("\nStopped. The messages are kept, and the next tour continues with them.")
    print(f"Database file: {os.fspath(path)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
