"""Runs a storm and prints what came of it."""

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.errors import StoreError
from tests.checker.__main__ import text as checked
from tests.faults.storm.ground import Ground
from tests.faults.storm.mariadb_ground import MariadbGround
from tests.faults.storm.postgres_ground import PostgresGround
from tests.faults.storm.redis_ground import RedisGround
from tests.faults.storm.scene import Scene, Stores
from tests.faults.storm.sqlite_ground import SqliteGround
from tests.faults.storm.storm import Outcome, Storm
from tests.servers.server import Unavailable

SECONDS = 60.0
RECLAIM_WITHIN_S = 2.0
LEAST = 5.0
EXAMPLES = 10
GROUNDS: dict[Stores, Callable[[Path], Ground]] = {
    "sqlite": SqliteGround,
    "postgres": PostgresGround,
    "mariadb": MariadbGround,
    "redis": RedisGround,
}


def main(arguments: list[str]) -> int:
    """0 when every promise was kept and enough happened to say so, 1 when not."""
    asked = parse(arguments)
    directory = asked.keep or Path(tempfile.mkdtemp(prefix="penstock-storm-"))
    directory.mkdir(parents=True, exist_ok=True)
    seed = secrets.randbelow(1_000_000) if asked.seed is None else asked.seed
    print(f"storm: seed {seed}, {asked.seconds:g} s, files in {directory}", file=sys.stderr)
    try:
        scene, outcome = asyncio.run(rage(asked, directory.resolve(), seed))
    except KeyboardInterrupt:
        print(f"storm: interrupted; all processes ended; files in {directory}", file=sys.stderr)
        return 130
    except StoreError as error:
        print(f"storm: seed {seed} broke the store: {error}; files in {directory}")
        return 1
    except Unavailable as error:
        print(f"storm: {error}", file=sys.stderr)
        return 2
    print(json(outcome, scene) if asked.json else text(outcome, scene))
    if outcome.calm and not asked.keep:
        shutil.rmtree(directory)
    return 0 if outcome.calm else 1


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.storm", description=__doc__)
    parser.add_argument("store", choices=list(GROUNDS))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long faults rage")
    parser.add_argument("--seed", type=int, help="repeats the plan of another storm")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory for its files")
    parser.add_argument("--workers", choices=["core", "real", "both"], default="both")
    parser.add_argument(
        "--reclaim-within", type=float, default=RECLAIM_WITHIN_S, metavar="SECONDS",
        help="how late an expired lease may be reclaimed",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the whole outcome as JSON")
    asked = parser.parse_args(arguments)
    if asked.keep and asked.keep.exists():
        parser.error(f"{asked.keep} exists already; --keep takes a new directory")
    if asked.seconds < LEAST:
        parser.error(f"--seconds {asked.seconds:g}: less than {LEAST:g} prove nothing")
    return asked


async def rage(asked: argparse.Namespace, directory: Path, seed: int) -> tuple[Scene, Outcome]:
    async with GROUNDS[asked.store](directory) as ground:
        scene = Scene(directory, asked.store, tuple(ground.urls), seed, asked.workers)
        scene.history.mkdir()
        scene.logs.mkdir()
        storm = Storm(scene, ground, asked.seconds, asked.workers, asked.reclaim_within)
        return scene, await storm.run()


def json(outcome: Outcome, scene: Scene) -> str:
    told = {"seed": scene.seed, "directory": str(scene.directory), "calm": outcome.calm}
    return msgspec.json.encode({**told, **msgspec.structs.asdict(outcome)}).decode()


def text(outcome: Outcome, scene: Scene) -> str:
    lines = [checked(outcome.report)]
    lines += [f"  {name:<16}{value}" for name, value in tallies(outcome).items()]
    lines += [f"PROBLEM: {problem}" for problem in outcome.problems[:EXAMPLES]]
    if not outcome.calm:
        lines.append(f"seed {scene.seed}; histories and logs are kept in {scene.directory}")
    return "\n".join(lines)


def tallies(outcome: Outcome) -> dict[str, str]:
    return {
        "messages": format_counts(outcome.states),
        "processes": f"{outcome.starts} started, {outcome.busy} found the store blocked",
        "innocents": f"{outcome.innocents} beside {outcome.killers} killers,"
        f" delivered at most {outcome.deliveries} times",
        "drained in": f"{outcome.drained_in:.1f} s",
        "logged": format_counts(outcome.logged),
    }


def format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
