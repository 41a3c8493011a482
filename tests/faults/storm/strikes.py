"""Plans the faults of a storm from its seed."""

import random
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

Kind = Literal[
    # What befalls a process, or all of them.
    "kill", "stop", "restart", "producers", "blackout",
    # Somebody stops with something in hand.
    "gate", "transaction", "snapshot", "uncommitted", "rows",
    # What befalls a server, and the network before it.
    "backend", "crash", "orphans", "hang", "terminate",
    "cut_before", "cut_after", "delay", "half_open", "refuse",
    # Nobody is told of work any more.
    "silence",
]  # fmt: skip
# At these shares of the storm's time, and again in each half minute.
Shares = Mapping[Kind, tuple[float, ...]]

# Somebody's transaction may be open for much longer than all else, and a server that hangs shall
# now and then outlast the patience of its callers.
LONG: Mapping[Kind, float] = {"snapshot": 6.0, "uncommitted": 3.0, "hang": 5.0}
# Small ones come one after the other, every so many seconds on the average.
EVERY = 0.4
SMALL: tuple[Kind, ...] = ("kill", "kill", "stop", "stop", "restart")
HALF_MINUTE = 30.0
# Seconds that most stops are shorter than.
LONGEST = 5.0


class Strike(Struct, frozen=True):
    """One fault: how many seconds after the start, what, on whom, for how long."""

    at: float
    kind: Kind
    victim: str = ""
    length: float = 0.0


def plan(
    seed: int, seconds: float, victims: list[str], great: Shares, small: Sequence[Kind] = SMALL
) -> list[Strike]:
    """The same for the same seed."""
    chance = random.Random(seed)
    strikes = great_ones(chance, seconds, great)
    at = chance.uniform(0.5, 1.0)
    while at < seconds:
        kind = chance.choice(small)
        strikes.append(Strike(at, kind, chance.choice(victims), stop_length(chance)))
        at += chance.expovariate(1 / EVERY)
    return sorted(strikes, key=lambda strike: strike.at)


def great_ones(chance: random.Random, seconds: float, great: Shares) -> list[Strike]:
    rounds = max(1, round(seconds / HALF_MINUTE))
    part = seconds / rounds
    return [
        Strike(part * (number + share + chance.uniform(-0.05, 0.05)), kind, "", length)
        for number in range(rounds)
        for kind, shares in great.items()
        for share in shares
        for length in [chance.uniform(0.5, 1.5) * LONG.get(kind, 1.0)]
    ]


def stop_length(chance: random.Random) -> float:
    """Most are longer than a lease; a few longer than a caller waits for an answer."""
    return LONGEST + 1 if chance.random() < 0.04 else chance.uniform(0.2, LONGEST)
