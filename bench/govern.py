"""Measures governed queues against the same workload without schemas, rules or subscriptions.

Command line: python -m bench.govern. Both sides publish in turn, in batches of 100. Drafts that are
alike and rules that read no body are the common case; the line with bodies is the other one.
"""

import argparse
import asyncio
from itertools import chain
from pathlib import Path
from time import perf_counter, thread_time

from msgspec import Struct

from bench.figures import Figure, compare_values
from bench.postgres import Postgres
from bench.rule_ends import play
from bench.table import HEADER, Target, format_json_line, format_line
from bench.workload import make_bodies
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
    # In a store without any policy, and in one with governed queues beside.
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


class Side(Struct, frozen=True):
    """One of two sides of a race: it publishes the same drafts again and again."""

    broker: Broker
    drafts: list[Draft]

    async def publish(self) -> float:
        began = perf_counter()
        await self.broker.publish_many(self.drafts)
        return perf_counter() - began


def make_side(broker: Broker, queue: str, *, count: int = BATCH, alike: bool = True) -> Side:
    return Side(
        broker,
        [
            Draft(queue=queue, body=text.encode(), labels=None if alike else {"n": str(number)})
            for number, text in enumerate(make_bodies(count))
        ],
    )


async def race(reference: Side, subject: Side, calls: int) -> tuple[float, float]:
    """Returns the calls a second of both sides. They publish in turn, and each as often first, so
    that a machine or a server that changes its pace changes both."""
    sides, seconds = (reference, subject), [0.0, 0.0]
    for side in sides:
        await side.publish()
    for call in range(calls):
        for place in (0, 1) if call % 2 else (1, 0):
            seconds[place] += await sides[place].publish()
    return calls / seconds[0], calls / seconds[1]


async def run_races(bare: str, url: str, count: int) -> dict[str, tuple[float, float]]:
    """`bare` is a store without any policy."""
    async with await stores.open(bare) as without, await stores.open(url) as store:
        free, broker = Broker(without), Broker(store)
        await free.admin.create_queue("plain")
        batches, singles = count // BATCH, count // 20
        plain = make_side(broker, "plain")
        unlike = make_side(broker, "plain", alike=False)
        reading = make_side(broker, "reading", alike=False)
        ten, one = make_side(broker, "plain", count=10), make_side(broker, "all", count=1)
        return {
            "publish without a policy": await race(make_side(free, "plain"), plain, batches),
            "publish with a schema": await race(plain, make_side(broker, "checked"), batches),
            "publish with 10 rules": await race(plain, make_side(broker, "governed"), batches),
            "10 rules, own bodies": await race(unlike, reading, batches),
            "broadcast to 10": await race(ten, one, singles),
        }


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
    races = []
    for _ in range(REPEATS):
        with subject.fresh() as bare, subject.fresh() as url:
            asyncio.run(prepare(url, 10))
            races.append(asyncio.run(run_races(bare, url, count)))
    return [make_figure(name, [each[name] for each in races]) for name in TARGETS]


def make_figure(name: str, rates: list[tuple[float, float]]) -> Figure:
    """A batch counts as its messages, a broadcast as one call."""
    unit, size = ("calls/s", 1) if "broadcast" in name else ("msg/s", BATCH)
    references = [size * reference for reference, _ in rates]
    return compare_values(name, unit, references, [size * value for _, value in rates])


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
        print(
            format_json_line("postgres", figure) if given.json else format_line(figure, target),
            flush=True,
        )


if __name__ == "__main__":
    main()
