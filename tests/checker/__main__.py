"""Prints the report of one history directory."""

import argparse
import sys
from pathlib import Path

import msgspec

from .check import check
from .reading import read
from .report import Report

EXAMPLES = 3


def main(arguments: list[str]) -> int:
    """0 when every promise was kept, 1 when not."""
    parser = argparse.ArgumentParser(prog="python -m tests.checker")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", action="store_true", help="the whole report as JSON")
    asked = parser.parse_args(arguments)
    report = check(read(asked.directory))
    printed = msgspec.json.encode(report).decode() if asked.json else text(report)
    sys.stdout.write(f"{printed}\n")
    return 0 if report.valid else 1


def text(report: Report) -> str:
    """For a person: each class with its count, the first examples, what happened."""
    lines = ["VALID" if report.valid else f"INVALID: {len(report.violations)} violations"]
    for kind, count in report.counts.items():
        lines.append(f"  {kind:<26}{count:>8}")
        found = [violation.text for violation in report.violations if violation.kind == kind]
        lines += [f"      {example}" for example in found[:EXAMPLES]]
    return "\n".join([*lines, "", *_measures(report)])


def _measures(report: Report) -> list[str]:
    measures = msgspec.structs.asdict(report.measures)
    reclaim, faults = report.measures.reclaim, report.measures.faults
    measures["reclaim"] = f"p50 {reclaim.p50:.3f} p99 {reclaim.p99:.3f} max {reclaim.max:.3f} s"
    measures["faults"] = ", ".join(f"{kind} {count}" for kind, count in faults.items()) or "none"
    return [f"  {name:<16}{value}" for name, value in measures.items()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
