"""mypy --strict finds a wrong argument, a wrong option and a wrong result, and nothing else."""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from mypy import api

HERE = Path(__file__).parent / "typed"
FOUND = re.compile(r"^(?P<file>.+?):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$")


def find_planted(path: Path) -> Counter[tuple[str, int, str]]:
    return Counter(
        (path.name, number, code.strip())
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for code in line.partition("# expect: ")[2].split(",")
        if code
    )


@pytest.mark.timeout(300)
def test_mypy_finds_exactly_the_planted_errors(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """The wrong file is no Python file at home, where all code is right."""
    cache = pytestconfig.cache.mkdir("mypy")
    paths = [HERE / "right.py", tmp_path / "wrong.py"]
    shutil.copy(HERE / "wrong.txt", paths[1])
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary"]
    report, crash, _ = api.run([*options, *map(str, paths)])
    assert crash == ""
    found = Counter(
        (Path(match["file"]).name, int(match["line"]), match["code"])
        for match in map(FOUND.match, report.splitlines())
        if match is not None
    )
    assert found == find_planted(paths[0]) + find_planted(paths[1]), report
    assert found.total() > 20
