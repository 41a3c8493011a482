"""Measures governed queues against the same workload without schemas, rules or subscriptions.

Command line: python -m bench.govern. Both sides run in turn, in batches of 100. Drafts that are
alike and rules that read no body are the common case; the line with bodies is the other one.
"""

import argparse
import asyncio
from itertools import chain
from pathlib import Path
from time import perf_counter, thread_time

from bench.figures import Figure, compared
from bench.postgres import Postgres
from bench.rule_ends import play
from bench.table import HEADER, Target, json_line, line
from bench.workload import bodies
from penstock import stores
from penstock.broker.local import Broker
from penstock.broker.routing.apply import route_draft
from penstock.model.message import Draft
from penstock.rules.drafts import check_and_make_entry

BATCH = 100
REPEATS = 3
HOME = Path(__file__).parents[1] / ".bench"
SCHEMA = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0},
        "sent_at": {"type": "number"},
        "padding": {"type": "string", "maxLength": 1_000},
    },
    "required": ["number", "sent_at"],
    "additionalProperties": False,
}
TARGETS: dict[str, Target | None] = {
    # Before and after other queues of the store are governed.
    "publish without a policy": Target("ratio", ">=", 0.95),
    "publish with a schema": Target("ratio", ">=", 0.85),
    "publish with 10 rules": Target("ratio", ">=", 0.8),
    # Reported without a bound: each draft differs and each rule parses the body.
    "10 rules, own bodies": None,
    "broadcast to 10": Target("ratio", ">=", 0.5),
}
SINGLE_TARGETS = {
    "100 rules": Target("value", "<=", 1.0),
    "ends within 1 s": Target("value", ">=", 0.95),
    "ends lost": Target("value", "<=", 0.0),
    "ends repeated": Target("value", "<=", 0.0),
}
KILLS = 20


def make_rule(number: int) -> dict[str, object]:
    """None of the rules matches, so that both sides write the same."""
    return {
        "name": f"r{number}",
        "queue": "governed",
        "order": number,
        "when": f"message.priority > {100 + number} && message.labels.tier == 'gold'",
        "do": [{"set": {"priority": 1}}],
    }


def make_reading_rule(number: int) -> dict[str, object]:
    return {
        "name": f"b{number}",
        "queue": "reading",
        "order": number,
        "when": f"message.body.number < -{1 + number}",
        "do": [{"set": {"priority": 1}}],
    }


async def prepare(url: str, rules: int) -> None:
    async with await stores.open(url) as store:
        broker = Broker(store)
        for name, kind in (
            ("plain", "competing"),
            ("checked", "competing"),
            ("governed", "competing"),
            ("reading", "competing"),
            ("all", "broadcast"),
        ):
            await broker.admin.ensure_queue(name, kind=kind)
        await broker.schemas.add("bench", SCHEMA)
        await broker.schemas.bind("checked", "bench")
        for number in range(rules):
            await broker.rules.save(make_rule(number))
            if number < 10:
                await broker.rules.save(make_reading_rule(number))
        for number in range(10):
            await broker.broadcasts.subscribe("all", f"s{number}")


async def publish_ungoverned(url: str, count: int) -> float:
    async with await stores.open(url) as store:
        await Broker(store).admin.create_queue("plain")
    return await publish(url, "plain", count)


async def publish(url: str, queue: str, count: int, *, alike: bool = True) -> float:
    async with await stores.open(url) as store:
        broker = Broker(store)
        drafts = [
            Draft(queue=queue, body=text.encode(), labels=None if alike else {"n": str(number)})
            for number, text in enumerate(bodies(BATCH))
        ]
        await broker.publish_many(drafts)
        began = perf_counter()
        for _ in range(count // BATCH):
            await broker.publish_many(drafts)
        return count / (perf_counter() - began)


async def publish_one_by_one(url: str, queue: str, copies: int, count: int) -> float:
    """Returns messages with their copies a second."""
    async with await stores.open(url) as store:
        broker = Broker(store)
        drafts = [Draft(queue=queue, body=text.encode()) for text in bodies(copies)]
        await broker.publish_many(drafts)
        began = perf_counter()
        for _ in range(count):
            await broker.publish_many(drafts)
        return count / (perf_counter() - began)


async def time_rules(url: str) -> float:
    """Returns the milliseconds of processor time that 100 rules take for a message."""
    async with await stores.open(url) as store:
        broker = Broker(store)
        queue = await broker.get_queue("governed")
        policy = broker.directory.policy.rules
        draft = Draft(queue="governed", body=b"{}", labels={"tier": "silver"})
        began = thread_time()
        for _ in range(1_000):
            route_draft(draft, queue, policy, check_and_make_entry)
        return thread_time() - began


def measure(count: int) -> list[Figure]:
    subject = Postgres(HOME)
    pairs: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in TARGETS}
    for _ in range(REPEATS):
        with subject.fresh() as url:
            references, values = pairs["publish without a policy"]
            references.append(asyncio.run(publish_ungoverned(url, count)))
            asyncio.run(prepare(url, 10))
            values.append(asyncio.run(publish(url, "plain", count)))
            references, values = pairs["publish with a schema"]
            references.append(asyncio.run(publish(url, "plain", count)))
            values.append(asyncio.run(publish(url, "checked", count)))
            references, values = pairs["publish with 10 rules"]
            references.append(asyncio.run(publish(url, "plain", count)))
            values.append(asyncio.run(publish(url, "governed", count)))
            references, values = pairs["10 rules, own bodies"]
            references.append(asyncio.run(publish(url, "plain", count, alike=False)))
            values.append(asyncio.run(publish(url, "reading", count, alike=False)))
            references, values = pairs["broadcast to 10"]
            references.append(asyncio.run(publish_one_by_one(url, "plain", 10, count // 20)))
            values.append(asyncio.run(publish_one_by_one(url, "all", 1, count // 20)))
    return [
        compared(name, "calls/s" if "broadcast" in name else "msg/s", references, values)
        for name, (references, values) in pairs.items()
    ]


def measure_singles(ends: int, kills: int) -> list[Figure]:
    """Measures what has no reference: rules in milliseconds a message, and rules on ends."""
    subject = Postgres(HOME)
    with subject.fresh() as url:
        asyncio.run(prepare(url, 100))
        rules = asyncio.run(time_rules(url))
    with subject.fresh() as url:
        calm = asyncio.run(play(url, ends, 0))
    with subject.fresh() as url:
        killed = asyncio.run(play(url, ends, kills))
    scenes = (calm, killed)
    return [
        Figure("100 rules", rules, "ms"),
        Figure("ends within 1 s", calm.within_a_second, "share"),
        Figure("ends lost", float(sum(each.lost for each in scenes)), "ends"),
        Figure("ends repeated", float(sum(each.repeated for each in scenes)), "ends"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.govern", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="messages of a run")
    parser.add_argument("--ends", type=int, default=20_000, help="ends of a scene with rules")
    parser.add_argument("--kills", type=int, default=KILLS, help="agents killed in the last scene")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    given = parser.parse_args()
    HOME.mkdir(exist_ok=True)
    if not given.json:
        print(HEADER)
    targets = {**TARGETS, **SINGLE_TARGETS}
    figures = chain(measure(given.count), measure_singles(given.ends, given.kills))
    for figure in figures:
        target = targets[figure.measure]
        print(json_line("postgres", figure) if given.json else line(figure, target), flush=True)


if __name__ == "__main__":
    main()
