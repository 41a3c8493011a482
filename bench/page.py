"""docs/benchmarks.md: the last kept figures of every store, beside what they must reach."""

import datetime
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.figures import Figure
from bench.peers.comparison import Result
from bench.plots import Bar, bars
from bench.reasons import REASONS
from bench.table import Target, number, verdict
from bench.targets import TARGETS

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "benchmarks"
INTRODUCTION = """\
# Benchmarks

Made by `./dev bench STORE --page`, of the service by `./dev bench http STORE --page`, and of the
pipeline by `./dev bench pipeline --page`. Speeds of single runs mean little on another machine;
ratios to a reference that ran in the same minutes mean more. "must" is what we hold ourselves to,
on a machine that does nothing else; a figure that falls short says so.
"""
HAND_WRITTEN = Bar("hand-written loop", 1.0)


class Kept(Struct, frozen=True):
    """One run of the benchmark, as it is kept beside the page."""

    store: str
    day: str
    machine: str
    terms: str
    figures: list[Figure]
    peers: list[Result] = []


def keep(store: str, terms: str, figures: list[Figure], peers: list[Result]) -> None:
    """Figures that were not measured now stay as they were; the page is made anew."""
    KEPT.mkdir(exist_ok=True)
    old = kept(store)
    known = {} if old is None else {figure.measure: figure for figure in old.figures}
    known |= {figure.measure: figure for figure in figures}
    ran = peers or ([] if old is None else old.peers)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    run = Kept(store, day, machine(), terms, list(known.values()), ran)
    (KEPT / f"{store}.json").write_bytes(msgspec.json.format(msgspec.json.encode(run)) + b"\n")
    write()


def kept(store: str) -> Kept | None:
    file = KEPT / f"{store}.json"
    return msgspec.json.decode(file.read_bytes(), type=Kept) if file.exists() else None


def machine() -> str:
    python = platform.python_version()
    return f"{os.cpu_count()} cores, {platform.system()}, Python {python}"


def write() -> None:
    runs = [run for store in TARGETS if (run := kept(store)) is not None]
    for run in runs:
        if drains(run):
            (KEPT / f"{run.store}.svg").write_text(bars([HAND_WRITTEN, *drains(run)]))
    (DOCS / "benchmarks.md").write_text("\n".join([INTRODUCTION, *map(section, runs)]))


def section(run: Kept) -> str:
    return f"""\
## {run.store}

{run.day}, {run.machine}. {run.terms}

{plot(run)}{table(run)}
{shortfalls(run)}{peer_table(run.peers)}"""


def plot(run: Kept) -> str:
    """For those that drain a queue."""
    told = "Messages drained by one worker, as a ratio to a hand-written loop"
    return f"![{told}](benchmarks/{run.store}.svg)\n\n" if drains(run) else ""


def drains(run: Kept) -> list[Bar]:
    ours = [Bar("Penstock", figure.ratio or 0.0, ours=True)
            for figure in run.figures if figure.measure == "drain"]  # fmt: skip
    ran = sorted((peer for peer in run.peers if peer.ratio), key=lambda peer: -peer.ratio)
    return [*ours, *(Bar(peer.peer, peer.ratio) for peer in ran)]


def table(run: Kept) -> str:
    lines = [row(figure, TARGETS[run.store].get(figure.measure)) for figure in run.figures]
    head = (
        "| measure | value | reference | ratio | low to high | must | |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(lines) + "\n"


def row(figure: Figure, target: Target | None) -> str:
    spread = "" if figure.low is None else f"{number(figure.low)} to {number(figure.high)}"
    cells = (
        f"`{figure.measure}`", f"{number(figure.value)} {figure.unit}", number(figure.reference),
        number(figure.ratio), spread, str(target or ""), figure.note or verdict(figure, target),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def shortfalls(run: Kept) -> str:
    lines = [
        f"- `{figure.measure}` misses by {shortfall(figure, target)}:"
        f" {REASONS.get(run.store, {}).get(figure.measure, 'the reason is not known yet')}.\n"
        for figure in run.figures
        if (target := TARGETS[run.store].get(figure.measure)) and not target.met_by(figure)
    ]
    return "".join(["What falls short, and why:\n\n", *lines, "\n"]) if lines else ""


def shortfall(figure: Figure, target: Target) -> str:
    reached = (figure.value if target.of == "value" else figure.ratio) or 0.0
    return f"{abs(reached - target.limit) / target.limit:.0%}"


def peer_table(peers: Sequence[Result]) -> str:
    if not peers:
        return ""
    lines = [
        f"| {peer.peer} {peer.version} | {number(peer.ratio or None)} |"
        f" {number(peer.old_snapshot or None)} | {peer.note} |"
        for peer in peers
    ]
    head = (
        "| another queue, one worker | drain, ratio to the loop | beside an old snapshot | |\n"
        "|---|---|---|---|\n"
    )
    return head + "\n".join(lines) + "\n"
