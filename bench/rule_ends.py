"""Measures rules on ends: how soon they fire at 1,000 ends a second, and that each fires once.

Two processes follow the ends, as the agents of two workers would. In the second scene they are
killed in turn while messages end.
"""

import argparse
import asyncio
import random
import subprocess
import sys
from collections import Counter
from time import perf_counter

from msgspec import Struct

from penstock import stores
from penstock.agents.rule_follower import RuleFollower
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.errors import StoreBusy, StoreUnreachable
from penstock.model.message import Draft
from penstock.model.store_types import Completion, Cursor
from penstock.store import Store

BATCH = 100
ENDS_PER_SECOND = 1_000
FOLLOWERS = 2
MICROS_PER_SECOND = 1_000_000
# How long the last ends may take to fire before they count as lost.
WAIT_TIMEOUT_S = 120.0
RULE = {
    "name": "after",
    "queue": "source",
    "on": "completed",
    "do": [{"copy": "after"}],
    "limit": 1_000_000,
}


class EndScene(Struct, frozen=True):
    """What became of the ends: seconds until each fired, and how many did not fire once."""

    ends: int
    seconds: float
    delays: list[float]
    lost: int
    repeated: int

    @property
    def within_a_second(self) -> float:
        return sum(each <= 1.0 for each in self.delays) / max(1, self.ends)


async def follow(url: str) -> None:
    """Follows ends until the process is killed."""
    async with await stores.open(url) as store:
        agent = RuleFollower(store, QueueCache(store), "bench")
        print("ready", flush=True)
        while True:
            try:
                wait = await agent.tick()
            except (StoreBusy, StoreUnreachable):
                # The runner of agents tries again after a pause, too.
                wait = agent.every
            await asyncio.sleep(wait)


def start_follower(url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.rule_ends", url]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


async def play(url: str, ends: int, kills: int) -> EndScene:
    """Ends messages at a steady rate while followers run, and are killed if asked."""
    async with await stores.open(url) as store:
        broker = Broker(store)
        for name in ("source", "after"):
            await broker.admin.ensure_queue(name)
        await broker.rules.save(RULE)
        followers = [start_follower(url) for _ in range(FOLLOWERS)]
        try:
            for each in followers:
                await wait_until_ready(each)
            killing = asyncio.ensure_future(kill_in_turn(url, followers, kills))
            began = perf_counter()
            ended = await end_steadily(broker, ends, killing)
            seconds = perf_counter() - began
            await killing
            await wait_until_fired(store, broker, ended)
        finally:
            for each in followers:
                stop(each)
        return await judge(store, broker, ended, seconds)


async def wait_until_ready(follower: subprocess.Popen[bytes]) -> None:
    assert follower.stdout is not None
    await asyncio.to_thread(follower.stdout.readline)


async def end_steadily(broker: Broker, ends: int, killing: "asyncio.Future[None]") -> int:
    """Ends at least `ends` messages, and goes on until all kills are done."""
    began, ended = perf_counter(), 0
    while ended < ends or not killing.done():
        await end_batch(broker, BATCH)
        ended += BATCH
        await asyncio.sleep(max(0.0, began + ended / ENDS_PER_SECOND - perf_counter()))
    return ended


async def end_batch(broker: Broker, count: int) -> None:
    await broker.publish_many([Draft(queue="source", type="work", body=b"{}")] * count)
    claimed = await broker.claim("source", consumer="bench", limit=count)
    await broker.complete_many([Completion(each.id, each.fence) for each in claimed.messages])


async def kill_in_turn(url: str, followers: list[subprocess.Popen[bytes]], kills: int) -> None:
    for number in range(kills):
        place = number % FOLLOWERS
        # Somewhere in its work.
        await asyncio.sleep(random.uniform(0.0, 0.5))
        stop(followers[place])
        followers[place] = start_follower(url)
        await wait_until_ready(followers[place])


def stop(follower: subprocess.Popen[bytes]) -> None:
    with follower:
        follower.kill()


async def wait_until_fired(store: Store, broker: Broker, ended: int) -> None:
    queue = await broker.get_queue("after")
    began = perf_counter()
    while perf_counter() - began < WAIT_TIMEOUT_S:
        if (await store.depths(0)).get((queue.id, "ready"), 0) >= ended:
            return
        await asyncio.sleep(0.1)


async def judge(store: Store, broker: Broker, ended: int, seconds: float) -> EndScene:
    """Reads the whole feed: when each message of the source ended, and what it caused."""
    source, after = [(await broker.get_queue(name)).id for name in ("source", "after")]
    ends: dict[int, int] = {}
    fired: Counter[int] = Counter()
    delays: list[float] = []
    made: list[tuple[int, int]] = []
    cursor = Cursor()
    while True:
        page = await store.feed(cursor, 5_000)
        if page.cursor == cursor:
            break
        cursor = page.cursor
        ends |= {row.id: row.at for row in page.history if row.queue_id == source}
        made += [
            (int(message.meta.causation_id or 0), message.created_at)
            for message in page.messages
            if message.queue_id == after
        ]
    for cause, created_at in made:
        fired[cause] += 1
        delays.append((created_at - ends[cause]) / MICROS_PER_SECOND)
    lost = sum(1 for id in ends if id not in fired)
    repeated = sum(count - 1 for count in fired.values())
    return EndScene(ends=len(ends), seconds=seconds, delays=delays, lost=lost, repeated=repeated)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.rule_ends", description=__doc__)
    parser.add_argument("url", help="the store whose ends are followed")
    asyncio.run(follow(parser.parse_args().url))


if __name__ == "__main__":
    main()
