"""Every finding of the trial names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "decisions" / "trial.md"
NAMED = re.compile(r"(\w+/\w+\.py)?((?:::\w+)?)(?=[,| ]|$)")


def list_named_tests() -> list[tuple[str, str]]:
    """Pairs of file and test; a test without a file is in the file before it."""
    found, file = [], ""
    rows = [line.split(" | ")[2] for line in PAGE.read_text().splitlines() if " | fixed" in line]
    for row in rows:
        for path, test in NAMED.findall(row):
            file = path or file
            if path or test:
                found.append((file, test.removeprefix("::")))
    return found


def test_every_test_that_a_finding_names_exists() -> None:
    named = list_named_tests()
    assert len(named) > 60
    assert [
        f"{file}::{test}"
        for file, test in named
        if not (TESTS / file).exists()
        or (test and f"def {test}(" not in (TESTS / file).read_text())
    ] == []
