"""A copy of the repository, in which a line is broken and tests are run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.mutation.child import REPORT, Failure
from tests.mutation.mutation import Mutation

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "pyproject.toml")
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".hypothesis")
TEST_LIMIT = 60
RUN_LIMIT = 1_800.0
ALL_PASSED, SOME_FAILED, INTERRUPTED, NONE_CHOSEN = 0, 1, 2, 5


class Stuck(Exception):
    """The tests did not come to an end, or not to an ordinary one."""


class Workshop:
    def __init__(self, directory: Path) -> None:
        self.root = directory / "copy"
        self.report = directory / "report"
        self.scratch = directory / "scratch"
        self.root.mkdir(parents=True)
        for name in COPIED:
            copy(ROOT / name, self.root / name)

    @contextmanager
    def broken(self, mutation: Mutation) -> Iterator[None]:
        path = self.root / mutation.path
        text = path.read_text()
        path.write_text(mutation.applied(text))
        try:
            yield
        finally:
            path.write_text(text)

    def first_failure(self, tests: Collection[str], chosen: str) -> Failure | None:
        return next(iter(self.failures(tests, chosen, "--exitfirst")), None)

    def failures(self, tests: Collection[str], chosen: str, *options: str) -> list[Failure]:
        """Of the chosen ones among the tests."""
        self.report.unlink(missing_ok=True)
        ended = self.pytest("-k", chosen, *options, *tests)
        if ended.returncode in (ALL_PASSED, NONE_CHOSEN):
            return []
        if ended.returncode not in (SOME_FAILED, INTERRUPTED) or not self.report.exists():
            raise Stuck(f"pytest ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
        lines = self.report.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Failure) for line in lines]

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-p", "tests.mutation.child"),
            *("-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", str(self.scratch)),
            # No hint needs it, and it takes longer to begin than most of them to end.
            *("-p", "no:schemathesis"),
            *("--timeout", str(TEST_LIMIT), *arguments),
        ]
        try:
            return subprocess.run(
                command,
                cwd=self.root,
                env=self.environment(),
                capture_output=True,
                text=True,
                timeout=RUN_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Stuck(f"the tests took over {RUN_LIMIT:g} s") from None

    def environment(self) -> dict[str, str]:
        """This copy's source, and no bytecode: a line may change within a second."""
        kept = {name: value for name, value in os.environ.items() if not of_another_run(name)}
        return kept | {
            "PYTHONPATH": str(self.root / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            REPORT: str(self.report),
        }


def of_another_run(name: str) -> bool:
    return name.startswith(("PYTEST_", "PENSTOCK_"))


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=LEFT_OUT)
    else:
        shutil.copy2(source, target)
