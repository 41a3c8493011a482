"""Compares how fast one worker of other queues drains the same server."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from msgspec import Struct

from bench.peers.peer import POSTGRES, REDIS, Environment, Failed, Peer, Step, prepare, run
from bench.postgres import Postgres, old_snapshot, usage
from bench.redis import Redis
from bench.references import postgres_loops, redis_loops
from bench.subjects import Subject
from bench.usage import Usage
from bench.worker_measures import drain_by

HAND = 30_000


class Result(Struct, frozen=True, omit_defaults=True):
    """Rates are messages per second, and costs are per drained message.

    `ratio` is to the hand-written loop just before; `old_snapshot` is to the drain without one.
    """

    peer: str
    version: str = ""
    messages: int = 0
    publish: float = 0.0
    drain: float = 0.0
    hand: float = 0.0
    ratio: float = 0.0
    old_snapshot: float = 0.0
    server_cpu_us: float = 0.0
    wal_bytes: float = 0.0
    commits: float = 0.0
    note: str = ""


def measure(subject: Postgres | Redis, peer: Peer, repeats: int) -> Result:
    compare = compare_on_postgres if isinstance(subject, Postgres) else compare_on_redis
    try:
        with prepare(peer) as environment:
            turns = [compare(subject, peer, environment) for _ in range(repeats)]
    except Failed as failure:
        return Result(peer.name, note=str(failure))
    return sorted(turns, key=lambda turn: turn.ratio)[repeats // 2]


def compare_on_redis(subject: Any, peer: Peer, environment: Environment) -> Result:
    with subject.fresh() as url:
        hand = drain_by(redis_loops, url, HAND)
    with subject.fresh() as url:
        fill = run(environment, "fill", url, peer.messages)
        drain = run(environment, "drain", url, peer.messages)
    return Result(
        peer.name, drain.version, drain.messages, fill.rate, drain.rate, hand, drain.rate / hand,
        note=peer.note,
    )  # fmt: skip


def compare_on_postgres(subject: Any, peer: Peer, environment: Environment) -> Result:
    with subject.fresh() as url:
        hand = drain_by(postgres_loops, url, HAND)
    fill, drain, used = fill_and_drain(subject, peer, environment)
    _, beside, _ = fill_and_drain(subject, peer, environment, held=True)
    return Result(
        peer.name,
        drain.version,
        drain.messages,
        fill.rate,
        drain.rate,
        hand,
        drain.rate / hand,
        beside.rate / drain.rate,
        1e6 * used.seconds / drain.messages,
        used.wal / drain.messages,
        used.commits / drain.messages,
        peer.note,
    )


def fill_and_drain(
    subject: Postgres, peer: Peer, environment: Environment, *, held: bool = False
) -> tuple[Step, Step, Usage]:
    """Fills and drains, with or without an old snapshot held open."""
    with subject.fresh() as url, old_snapshot(url) if held else nullcontext():
        fill = run(environment, "fill", url, peer.messages)
        before = usage(subject.server, readers=int(held))
        drain = run(environment, "drain", url, peer.messages)
        return fill, drain, usage(subject.server, readers=int(held)).since(before)


def compare_peers(subject: Subject, repeats: int) -> Iterator[Result]:
    """Yields the result of each peer; none for stores without peers."""
    if isinstance(subject, Postgres | Redis):
        for peer in POSTGRES if isinstance(subject, Postgres) else REDIS:
            yield measure(subject, peer, repeats)
