"""Runs a storm and prints what came of it."""

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from penstock.errors import StoreError
from penstock.testing.checker.__main__ import text as checked
from tests.faults.storm import sqlite
from tests.faults.storm.scene import Scene
from tests.faults.storm.storm import Outcome, Storm

SECONDS = 60.0
LEAST = 5.0
EXAMPLES = 10


def main(arguments: list[str]) -> int:
    """0 when every promise was kept and enough happened to say so, 1 when not."""
    asked = parse(arguments)
    directory = asked.keep or Path(tempfile.mkdtemp(prefix="penstock-storm-"))
    scene = set_the_scene(directory, asked.seed)
    print(f"storm: seed {scene.seed}, {asked.seconds:g} s, files in {directory}", file=sys.stderr)
    try:
        outcome = asyncio.run(Storm(scene, asked.seconds, asked.workers).run())
    except KeyboardInterrupt:
        print(f"storm: interrupted; all processes ended; files in {directory}", file=sys.stderr)
        return 130
    except StoreError as error:
        print(f"storm: seed {scene.seed} broke the store: {error}; files in {directory}")
        return 1
    print(json(outcome, scene) if asked.json else text(outcome, scene))
    if outcome.calm and not asked.keep:
        shutil.rmtree(directory)
    return 0 if outcome.calm else 1


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.storm", description=__doc__)
    parser.add_argument("store", choices=["sqlite"])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long faults rage")
    parser.add_argument("--seed", type=int, help="repeats the plan of another storm")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory for its files")
    parser.add_argument("--workers", choices=["core", "real", "both"], default="both")
    parser.add_argument("--json", action="store_true", help="the whole outcome as JSON")
    asked = parser.parse_args(arguments)
    if asked.keep and asked.keep.exists():
        parser.error(f"{asked.keep} exists already; --keep takes a new directory")
    if asked.seconds < LEAST:
        parser.error(f"--seconds {asked.seconds:g}: less than {LEAST:g} prove nothing")
    return asked


def set_the_scene(directory: Path, seed: int | None) -> Scene:
    scene = Scene(
        directory.resolve(),
        sqlite.url(directory.resolve()),
        secrets.randbelow(1_000_000) if seed is None else seed,
    )
    scene.history.mkdir(parents=True)
    scene.logs.mkdir()
    return scene


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
        "messages": listed(outcome.states),
        "processes": f"{outcome.starts} started, {outcome.busy} found the store blocked",
        "drained in": f"{outcome.drained_in:.1f} s",
        "logged": listed(outcome.logged),
    }


def listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
