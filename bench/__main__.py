"""The command: python -m bench sqlite."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.children import BATCH
from bench.measures import NAMES, QUICK, Ground, Sizes, measure
from bench.references import sqlite_loops
from bench.table import HEADER, json_line, line
from bench.workload import BODY, WARM_UP

HOME = Path(__file__).parents[1] / ".bench"

TERMS = f"""\
Bodies of {BODY} bytes, synchronous=FULL on both sides. Every run has a fresh file and a fresh
process, which begins with {WARM_UP} untimed messages. Both sides run in turn and their medians are
compared; repeats: {{repeats}}. Penstock claims up to {BATCH} and decodes with msgspec; the
hand-written loop claims {sqlite_loops.BATCH} and decodes with json. "must" is for a file on a disk.
Files in {{directory}}.
"""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure a store.")
    parser.add_argument("store", choices=["sqlite"])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument(
        "--quick", action="store_true", help="see that it runs; figures mean little"
    )
    parser.add_argument("--dir", type=Path, help="where the files go; .bench unless given")
    return parser.parse_args(words)


def main() -> None:
    given = arguments()
    sizes = QUICK if given.quick else Sizes()
    directory = given.dir or own_directory()
    directory.mkdir(parents=True, exist_ok=True)
    if not given.json:
        print(TERMS.format(repeats=sizes.repeats, directory=directory))
        print(HEADER)
    for figure in measure(Ground(directory, sizes), given.only):
        print(json_line(given.store, figure) if given.json else line(figure), flush=True)


def own_directory() -> Path:
    """On the disk the sources are on, unseen by git."""
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    return HOME


if __name__ == "__main__":
    main()
