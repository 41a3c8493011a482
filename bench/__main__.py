"""Command line: python -m bench sqlite."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import measures, page, postgres_measures, server_measures, two_inserts
from bench.figures import Figure
from bench.ground import QUICK, Ground, Sizes
from bench.mariadb import MariaDB
from bench.measures import Measures
from bench.peers.comparison import Result, compare_peers
from bench.postgres import Postgres
from bench.redis import Redis
from bench.subjects import Sqlite, Subject
from bench.table import HEADER, format_json_line, format_line, format_peer_line
from bench.targets import TARGETS
from bench.workload import BODY, WARM_UP

HOME = Path(__file__).parents[1] / ".bench"
SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "sqlite": Sqlite,
    "postgres": Postgres,
    "mariadb": MariaDB,
    "redis": Redis,
}
MEASURES: dict[str, Measures] = {
    "sqlite": measures.MEASURES | two_inserts.SQLITE_MEASURES,
    "postgres": measures.MEASURES | two_inserts.POSTGRES_MEASURES | postgres_measures.MEASURES,
    "mariadb": measures.MEASURES | server_measures.MEASURES,
    "redis": measures.MEASURES,
}

TERMS = f"""\
Bodies of {BODY} bytes. {{terms}}
Every run has a fresh store and a fresh process with {WARM_UP} untimed warm-up messages. Both sides
run in turn and their medians are compared; repeats: {{repeats}}. "low to high" is the range of
single runs. A worker has the default settings and decodes with msgspec; the hand-written loop
claims {{batch}} and decodes with json. "client" is the thread of the worker's loop; another thread
writes SQLite. "must" applies to a disk and an otherwise idle machine.
"""


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    names = sorted({name for each in MEASURES.values() for group in each for name in group})
    parser = argparse.ArgumentParser(prog="bench", description="Benchmark a store.")
    parser.add_argument("store", choices=list(SUBJECTS))
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--peers", action="store_true", help="also benchmark other queues")
    parser.add_argument(
        "--page", action="store_true", help="write the results to docs/benchmarks.md"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smoke test with few messages; the results mean little"
    )
    parser.add_argument("--dir", type=Path, help="directory for files (default: .bench)")
    return parser.parse_args(words)


def main() -> None:
    given = parse_arguments()
    sizes = QUICK if given.quick else Sizes()
    directory = given.dir or make_directory()
    directory.mkdir(parents=True, exist_ok=True)
    subject = SUBJECTS[given.store](directory)
    if not given.json:
        batch = subject.reference.BATCH
        print(TERMS.format(terms=subject.terms, repeats=sizes.repeats, batch=batch))
        print(HEADER)
    figures: list[Figure] = []
    for figure in measures.measure(Ground(subject, sizes), MEASURES[given.store], given.only):
        target = TARGETS[given.store].get(figure.measure)
        print(
            format_json_line(given.store, figure) if given.json else format_line(figure, target),
            flush=True,
        )
        figures.append(figure)
    ran: list[Result] = []
    for result in compare_peers(subject, sizes.repeats) if given.peers else ():
        print(format_peer_line(result), flush=True)
        ran.append(result)
    if given.page:
        page.keep(given.store, subject.terms, figures, ran)


def make_directory() -> Path:
    """Returns a git-ignored directory on the disk of the sources."""
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    return HOME


if __name__ == "__main__":
    main()
